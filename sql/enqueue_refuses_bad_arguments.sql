-- What could not be sent later is refused when it is enqueued.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

SELECT outbox_enqueue(NULL, 'x');
\echo :SQLSTATE
SELECT outbox_enqueue('', 'x');
\echo :SQLSTATE

-- The limits of names count bytes.
BEGIN;
SELECT outbox_enqueue(repeat('d', 1024), 'x', NULL, repeat('m', 1024)) = repeat('m', 1024) AS taken;
SELECT outbox_enqueue(repeat(chr(8364), 341) || 'd', 'x', NULL, repeat(chr(8364), 341) || 'm') IS NOT NULL AS taken;
ROLLBACK;
SELECT outbox_enqueue(repeat('d', 1025), 'x');
\echo :SQLSTATE
SELECT outbox_enqueue(repeat(chr(8364), 342), 'x');
\echo :SQLSTATE
SELECT outbox_enqueue('bad', 'x', NULL, repeat('m', 1025));
\echo :SQLSTATE
SELECT outbox_enqueue('bad', 'x', message_id => '');
\echo :SQLSTATE

-- Keys of the outbox in Redis; names there are case-sensitive.
SELECT outbox_enqueue('outbox:', 'x');
\echo :SQLSTATE
SELECT outbox_enqueue('outbox:fence:1', 'x');
\echo :SQLSTATE
BEGIN;
SELECT outbox_enqueue('outbox', 'x', NULL, 'm1'), outbox_enqueue('Outbox:x', 'x', NULL, 'm2'),
	outbox_enqueue(' outbox:x', 'x', NULL, 'm3');
ROLLBACK;

-- NULL of any type is no body; an empty body is one.
SELECT outbox_enqueue('bad', NULL);
\echo :SQLSTATE
SELECT outbox_enqueue('bad', NULL::text);
\echo :SQLSTATE
SELECT outbox_enqueue('bad', NULL::json);
\echo :SQLSTATE
SELECT outbox_enqueue('bad', NULL::jsonb);
\echo :SQLSTATE
SELECT outbox_enqueue('bad', NULL::bytea);
\echo :SQLSTATE
BEGIN;
SELECT outbox_enqueue('good', '', NULL, 'm1'), outbox_enqueue('good', ''::bytea, NULL, 'm2'),
	outbox_enqueue('good', 'null'::jsonb, NULL, 'm3');
ROLLBACK;

-- 64 MiB, and one byte more.
BEGIN;
SELECT outbox_enqueue('good', repeat('x', 64 * 1024 * 1024), NULL, 'm1');
SELECT outbox_enqueue('good', repeat('x', 64 * 1024 * 1024)::bytea, NULL, 'm2');
ROLLBACK;
SELECT outbox_enqueue('bad', repeat('x', 64 * 1024 * 1024 + 1));
\echo :SQLSTATE
SELECT outbox_enqueue('bad', repeat('x', 64 * 1024 * 1024 + 1)::bytea);
\echo :SQLSTATE
SELECT outbox_enqueue('bad', to_jsonb(repeat('x', 64 * 1024 * 1024 - 1)));
\echo :SQLSTATE

-- Nothing of all this was stored.
SELECT count(*) FROM outbox.pending WHERE dest IN ('bad', 'good');
