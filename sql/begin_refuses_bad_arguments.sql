-- outbox_begin() refuses bad arguments at once.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

SELECT outbox_begin(NULL);
\echo :SQLSTATE
SELECT outbox_begin(NULL::text, 'default', 'optimistic');
\echo :SQLSTATE
SELECT outbox_begin(NULL::uuid);
\echo :SQLSTATE
SELECT outbox_begin('');
\echo :SQLSTATE

-- The limit counts bytes: the euro sign has three.
BEGIN;
SELECT outbox_begin(repeat('x', 1024));
ROLLBACK;
SELECT outbox_begin(repeat('x', 1025));
\echo :SQLSTATE
BEGIN;
SELECT outbox_begin(repeat(chr(8364), 341) || 'x');
ROLLBACK;
SELECT outbox_begin(repeat(chr(8364), 341) || 'xx');
\echo :SQLSTATE

SELECT outbox_begin('bad-1', 'nowhere');
\echo :SQLSTATE
SELECT outbox_begin('bad-1', '');
\echo :SQLSTATE
SELECT outbox_begin('00000000-0000-0000-0000-000000000001'::uuid, 'nowhere');
\echo :SQLSTATE
SET outbox.endpoint = 'nowhere';
SELECT outbox_begin('bad-1');
\echo :SQLSTATE
RESET outbox.endpoint;

SELECT outbox_begin('bad-1', NULL, 'eager');
\echo :SQLSTATE
SELECT outbox_begin('bad-1', NULL, 'PESSIMISTIC');
\echo :SQLSTATE
SELECT outbox_begin('bad-1', concurrency => '');
\echo :SQLSTATE
SELECT outbox_begin('00000000-0000-0000-0000-000000000001'::uuid, concurrency => 'eager');
\echo :SQLSTATE

-- No message is open after an error.
BEGIN;
SAVEPOINT before;
SELECT outbox_begin('bad-1', 'nowhere');
ROLLBACK TO before;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;

-- NULL is the same as leaving an argument out.
BEGIN;
SELECT outbox_begin('bad-1', NULL, NULL);
SELECT outbox_commit();
COMMIT;
