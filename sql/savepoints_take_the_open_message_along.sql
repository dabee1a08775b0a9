-- What is open, and how many messages it has, follows ROLLBACK TO and RELEASE.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

-- begin rolled back: nothing is open
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('save-1');
SELECT outbox_enqueue('save', 'x', NULL, 'save-1-out');
ROLLBACK TO a;
SELECT outbox_begin('save-2');
SELECT outbox_commit();
COMMIT;

-- begin released: it is open
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT outbox_begin('save-3');
RELEASE b;
RELEASE a;
SELECT outbox_enqueue('save', 'x', NULL, 'save-3-out');
SELECT outbox_commit();
COMMIT;

-- enqueue rolled back: it does not count, nor is it sent
BEGIN;
SELECT outbox_begin('save-4');
SELECT outbox_enqueue('save', 'x', NULL, 'save-4-1');
SAVEPOINT a;
SELECT outbox_enqueue('save', 'x', NULL, 'save-4-gone');
SAVEPOINT b;
SELECT outbox_enqueue('save', 'x', NULL, 'save-4-gone too');
RELEASE b;
ROLLBACK TO a;
SELECT outbox_enqueue('save', 'x', NULL, 'save-4-2');
RELEASE a;
SELECT outbox_commit();
COMMIT;

-- commit rolled back: it is open again, with the messages it had then
BEGIN;
SELECT outbox_begin('save-5');
SELECT outbox_enqueue('save', 'x', NULL, 'save-5-out');
SAVEPOINT a;
SELECT outbox_commit();
SELECT outbox_begin('save-6'), outbox_commit();
ROLLBACK TO a;
SAVEPOINT b;
SELECT outbox_begin('save-6');
\echo :SQLSTATE
ROLLBACK TO b;
SELECT outbox_commit();
COMMIT;

-- commit rolled back and forgotten
BEGIN;
SELECT outbox_begin('save-7');
SAVEPOINT a;
SELECT outbox_commit();
ROLLBACK TO a;
COMMIT;
\echo :SQLSTATE

-- a duplicate found in a savepoint that is rolled back
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('save-5');
ROLLBACK TO a;
SELECT outbox_enqueue('save', 'x', NULL, 'after a duplicate that was rolled back');
SAVEPOINT b;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK TO b;
-- and one that is released
SELECT outbox_begin('save-5');
RELEASE b;
SELECT outbox_enqueue('save', 'x', NULL, 'save-5-gone');
\echo :SQLSTATE
ROLLBACK;

-- A claim that is rolled back is given up, one that is released is kept.
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('save-8', concurrency => 'pessimistic');
ROLLBACK TO a;
SELECT outbox_begin('save-8', concurrency => 'pessimistic');
RELEASE a;
SAVEPOINT b;
SELECT outbox_commit();
RELEASE b;
SELECT outbox_begin('save-8');
COMMIT;

-- deep nests: the middle is rolled back, the rest stays
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('save-9');
SAVEPOINT b;
SELECT outbox_enqueue('save', 'x', NULL, 'save-9-1');
SAVEPOINT c;
SELECT outbox_enqueue('save', 'x', NULL, 'save-9-2');
SAVEPOINT d;
SELECT outbox_commit();
SAVEPOINT e;
SELECT outbox_begin('save-10', concurrency => 'pessimistic');
RELEASE e;
ROLLBACK TO d;
SELECT outbox_commit();
ROLLBACK TO c;
RELEASE b;
SELECT outbox_enqueue('save', 'x', NULL, 'save-9-3');
RELEASE a;
SELECT outbox_commit();
COMMIT;

SELECT msgid FROM outbox.records WHERE msgid LIKE 'save-%' ORDER BY length(msgid), msgid;
SELECT message_id, cause FROM log WHERE dest = 'save' ORDER BY id;
