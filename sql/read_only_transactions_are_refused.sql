-- Functions that write fail in a read-only transaction; those that only read do not.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never
SELECT outbox_begin('ro-1') AS is_new, outbox_commit() AS messages;

BEGIN READ ONLY;
SAVEPOINT a;
SELECT outbox_begin('ro-2');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_begin('00000000-0000-0000-0000-000000000002'::uuid);
\echo :SQLSTATE
ROLLBACK TO a;
-- also for a duplicate, for the caller cannot know that it is one
SELECT outbox_begin('ro-1');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_enqueue('ro', 'x');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_enqueue('ro', 'x'::bytea);
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_create_endpoint('ro');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_cleanup();
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_replay('infinity');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT outbox_pause('ro');
\echo :SQLSTATE
ROLLBACK TO a;
SELECT endpoint, msgid FROM outbox.records WHERE msgid LIKE 'ro-%';
SELECT count(*) FROM outbox.pending WHERE dest = 'ro';
SELECT count(*) FROM outbox.status;
SELECT count(*) FROM outbox.dead_letters, outbox.destinations WHERE dead_letters.dest = 'ro';
SELECT outbox_wait('ro-2');
COMMIT;

-- by the setting
SET default_transaction_read_only = on;
SELECT outbox_begin('ro-2');
\echo :SQLSTATE
RESET default_transaction_read_only;

-- one that became read-only in the middle
BEGIN;
SELECT outbox_begin('ro-2');
SET TRANSACTION READ ONLY;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT outbox_begin('ro-2');
\echo :SQLSTATE
ROLLBACK;
SELECT outbox_begin('ro-2') AS is_new, outbox_commit() AS messages;
