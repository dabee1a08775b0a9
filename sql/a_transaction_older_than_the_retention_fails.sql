-- The records that such a transaction has looked for may have expired meanwhile, so it must not claim.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
SELECT outbox_create_endpoint('brief', retention => '1 ms');
SELECT outbox_create_endpoint('long', retention => '1 day');

BEGIN;
SELECT outbox_begin('old-1', 'brief');
SELECT outbox_enqueue('old', 'x', NULL, 'old-1-out');
SELECT FROM pg_sleep(0.01);
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT FROM pg_sleep(0.01);
SELECT outbox_begin('old-1', 'brief', 'pessimistic');
\echo :SQLSTATE
ROLLBACK;

-- Other endpoints are not affected.
BEGIN;
SELECT FROM pg_sleep(0.01);
SELECT outbox_begin('old-1', 'long', 'pessimistic'), outbox_commit();
SELECT outbox_begin('old-1', 'default'), outbox_commit();
COMMIT;

-- A duplicate is found, however old the transaction is.
SELECT outbox_alter_endpoint('brief', retention => '1 day');
SELECT outbox_begin('old-2', 'brief') AS is_new, outbox_commit() AS messages;
SELECT outbox_alter_endpoint('brief', retention => '1 ms');
BEGIN;
SELECT FROM pg_sleep(0.01);
SELECT outbox_begin('old-2', 'brief');
SELECT outbox_begin('old-2', 'brief', 'pessimistic');
COMMIT;
SELECT endpoint, msgid FROM outbox.records WHERE msgid LIKE 'old-%' ORDER BY 1, 2;
SELECT outbox_drop_endpoint('brief'), outbox_drop_endpoint('long');
