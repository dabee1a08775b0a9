-- Immediate dispatch: it refuses the same arguments, and reports a Redis that cannot be reached.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

SELECT outbox_send(NULL, 'x');
\echo :SQLSTATE
SELECT outbox_send('', 'x');
\echo :SQLSTATE
SELECT outbox_send(repeat('d', 1025), 'x');
\echo :SQLSTATE
SELECT outbox_send('outbox:lease:1', 'x');
\echo :SQLSTATE
SELECT outbox_send('send', NULL);
\echo :SQLSTATE
SELECT outbox_send('send', NULL::bytea);
\echo :SQLSTATE
SELECT outbox_send('send', 'x', '{"id": 1}');
\echo :SQLSTATE
SELECT outbox_send('send', '{}'::json, '[]');
\echo :SQLSTATE
SELECT outbox_send('send', '{}'::jsonb, message_id => '');
\echo :SQLSTATE
SELECT outbox_send('send', 'x', NULL, repeat('m', 1025));
\echo :SQLSTATE

-- No Redis; the reason comes from the operating system.
SET outbox.redis_url = 'unix:///nowhere/redis.sock';
\set VERBOSITY sqlstate
SELECT outbox_send('send', 'x');
BEGIN;
SELECT outbox_begin('send-1');
SAVEPOINT a;
SELECT outbox_send('send', 'x'::bytea, '{"h": 1}', 'send-1-out');
ROLLBACK TO a;
-- The transaction can go on, and the message does not belong to the record.
SELECT outbox_commit();
COMMIT;
\set VERBOSITY default
RESET outbox.redis_url;
SELECT count(*) FROM outbox.pending WHERE dest = 'send';
SELECT msgid FROM outbox.records WHERE msgid = 'send-1';
