-- begin, enqueue, commit: any other order is an error, and loses nothing.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- commit without begin
SELECT outbox_commit();
\echo :SQLSTATE
BEGIN;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;

-- begin twice, whether it is the same message or another
BEGIN;
SELECT outbox_begin('order-1');
SAVEPOINT opened;
SELECT outbox_begin('order-1');
\echo :SQLSTATE
ROLLBACK TO opened;
SELECT outbox_begin('order-2');
\echo :SQLSTATE
ROLLBACK TO opened;
SELECT outbox_begin('order-2', concurrency => 'pessimistic');
\echo :SQLSTATE
ROLLBACK TO opened;
-- The first one is open as before.
SELECT outbox_enqueue('order', 'x', NULL, 'order-1-out');
SELECT outbox_commit();
-- commit twice
SAVEPOINT committed;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK TO committed;
COMMIT;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'order-%' ORDER BY 1;

-- enqueue after a duplicate
BEGIN;
SELECT outbox_begin('order-1');
SAVEPOINT duplicate;
SELECT outbox_enqueue('order', 'x');
\echo :SQLSTATE
ROLLBACK TO duplicate;
-- commit after a duplicate does nothing; then nothing is open any more
SELECT outbox_commit();
SAVEPOINT committed;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK TO committed;
SELECT outbox_enqueue('order', 'x', NULL, 'order-2-out');
COMMIT;

-- After a duplicate the next message may be opened without a commit.
BEGIN;
SELECT outbox_begin('order-1');
SELECT outbox_begin('order-1');
SELECT outbox_begin('order-3');
SELECT outbox_enqueue('order', 'x', NULL, 'order-3-out');
SELECT outbox_commit();
COMMIT;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'order-%' ORDER BY 1;
