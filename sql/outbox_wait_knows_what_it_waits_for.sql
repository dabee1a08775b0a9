-- What outbox_wait() answers whether or not a Redis is there.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

SELECT outbox_wait(NULL);
\echo :SQLSTATE
SELECT outbox_wait('wait-1', 'nowhere');
\echo :SQLSTATE
SELECT outbox_wait('wait-1', timeout => NULL);
\echo :SQLSTATE
SELECT outbox_wait('wait-1', timeout => '-1 ms');
\echo :SQLSTATE

-- no such record
SELECT outbox_wait('wait-1') IS NULL AS unknown;
BEGIN;
SELECT outbox_begin('wait-1'), outbox_enqueue('wait', 'x', NULL, 'wait-1-out'), outbox_commit();
ROLLBACK;
SELECT outbox_wait('wait-1') IS NULL AS unknown;

-- within the transaction that processes it there is nothing to wait for
BEGIN;
SELECT outbox_begin('wait-1'), outbox_commit();
SELECT outbox_wait('wait-1');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('wait-1', concurrency => 'pessimistic');
RELEASE a;
SELECT outbox_wait('wait-1');
\echo :SQLSTATE
ROLLBACK;
-- one that is open, but not claimed yet, is no record
BEGIN;
SELECT outbox_begin('wait-1');
SELECT outbox_wait('wait-1') IS NULL AS unknown;
SELECT outbox_commit();
COMMIT;

-- a record that carries nothing is dispatched as soon as it is committed
SELECT outbox_wait('wait-1');
SELECT outbox_wait('wait-1', 'default', '0');
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT outbox_wait('wait-1');
COMMIT;

-- one that carries something: whatever the answer, it comes in time
SELECT outbox_begin('wait-2'), outbox_enqueue('wait', 'x', NULL, 'wait-2-out'), outbox_commit();
SELECT outbox_wait('wait-2', timeout => '10 ms') IS NOT NULL AS known;
-- an interval in the place of the endpoint
SELECT outbox_wait('wait-2', interval '5 s');
\echo :SQLSTATE
