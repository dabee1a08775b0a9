-- Two-phase commit. prepared_transactions_keep_record_and_message_1.out is for max_prepared_transactions = 0.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

-- A record must be sealed before.
BEGIN;
SELECT outbox_begin('prep-1');
PREPARE TRANSACTION 'regress_outbox_1';
\echo :SQLSTATE
SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'regress_outbox%';

BEGIN;
SELECT outbox_begin('prep-1');
SELECT outbox_enqueue('prep', 'x', NULL, 'prep-1-out');
SELECT outbox_commit();
PREPARE TRANSACTION 'regress_outbox_1';
-- The session is free for the next message.
BEGIN;
SELECT outbox_begin('prep-2'), outbox_enqueue('prep', 'x', NULL, 'prep-2-out'), outbox_commit();
COMMIT;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'prep-%' ORDER BY 1;
-- The same message waits for it, in either mode.
SET lock_timeout = '50 ms';
BEGIN;
SELECT outbox_begin('prep-1', concurrency => 'pessimistic');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT outbox_begin('prep-1');
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
RESET lock_timeout;

COMMIT PREPARED 'regress_outbox_1';
SELECT outbox_begin('prep-1');
SELECT msgid FROM outbox.records WHERE msgid LIKE 'prep-%' ORDER BY 1;
SELECT message_id FROM log WHERE dest = 'prep' ORDER BY id;

-- rolled back: as if nothing had been
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('prep-3', concurrency => 'pessimistic');
SELECT outbox_enqueue('prep', 'x', NULL, 'prep-3-gone');
RELEASE a;
SELECT outbox_commit();
PREPARE TRANSACTION 'regress_outbox_3';
ROLLBACK PREPARED 'regress_outbox_3';
SELECT outbox_begin('prep-3') AS is_new, outbox_enqueue('prep', 'x', NULL, 'prep-3-out') AS id, outbox_commit() AS messages;

-- after a duplicate
BEGIN;
SELECT outbox_begin('prep-3');
PREPARE TRANSACTION 'regress_outbox_4';
COMMIT PREPARED 'regress_outbox_4';

SELECT msgid FROM outbox.records WHERE msgid LIKE 'prep-%' ORDER BY 1;
SELECT message_id, cause FROM log WHERE dest = 'prep' ORDER BY id;
