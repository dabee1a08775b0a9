-- outbox.headers gives headers to all messages that are enqueued while it is in force.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never

BEGIN;
SET LOCAL outbox.headers = '{"traceparent": "00-1", "n": 1.50, "t": true}';
SELECT outbox_enqueue('common', 'x', message_id => 'none of its own');
SELECT outbox_enqueue('common', 'x', '{}', message_id => 'empty');
SELECT outbox_enqueue('common', 'x', '{"type": "Placed"}', message_id => 'another');
SELECT outbox_enqueue('common', 'x', '{"n": "own", "traceparent": ""}', message_id => 'its own count');
SELECT outbox_enqueue_many('common', '{a,b}', '[{"n": 2}, null]', '{many-1,many-2}');
SELECT outbox_enqueue_many('common', '{c}', '{"type": "Many"}', '{many-3}');
SAVEPOINT s;
SET LOCAL outbox.headers = '{"inner": 1}';
SELECT outbox_enqueue('common', 'x', message_id => 'in a savepoint');
RELEASE s;
SELECT outbox_enqueue('common', 'x', message_id => 'after it');
SAVEPOINT s;
SET LOCAL outbox.headers = '{"undone": 1}';
ROLLBACK TO s;
SELECT outbox_enqueue('common', 'x', message_id => 'after one that was undone');
SELECT set_config('outbox.headers', '{"parameter": 1}', true);
SELECT outbox_enqueue('common', 'x', message_id => 'set_config');
SET LOCAL outbox.headers = '{}';
SELECT outbox_enqueue('common', 'x', message_id => 'no headers');
SET LOCAL outbox.headers = '';
SELECT outbox_enqueue('common', 'x', message_id => 'nothing');
SELECT message_id, headers FROM outbox_enqueued();
ROLLBACK;

-- The record of an incoming message has none, nor does what comes after the transaction.
SET outbox.headers = '{"of": "the session"}';
BEGIN;
SELECT outbox_begin('headers-1');
SET LOCAL outbox.headers = '{"of": "the transaction"}';
SELECT outbox_enqueue('common', 'x', message_id => 'in the transaction');
SELECT outbox_commit();
SELECT message_id, headers FROM outbox_enqueued();
COMMIT;
BEGIN;
SELECT outbox_enqueue('common', 'x', message_id => 'in the next one');
SELECT message_id, headers FROM outbox_enqueued();
ROLLBACK;
RESET outbox.headers;
SHOW outbox.headers;

-- A function may have its own.
CREATE FUNCTION pg_temp.place() RETURNS text LANGUAGE sql SET outbox.headers = '{"by": "a function"}'
	AS $$ SELECT outbox_enqueue('common', 'x', '{"type": "Placed"}', 'in a function') $$;
-- Deferred triggers run while the setting is still in force.
CREATE TEMP TABLE orders (id integer);
CREATE FUNCTION pg_temp.announce() RETURNS trigger LANGUAGE plpgsql
	AS $$ BEGIN PERFORM outbox_enqueue('common', 'x', message_id => 'deferred'); RAISE NOTICE '%', (SELECT headers FROM outbox_enqueued() WHERE message_id = 'deferred'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER announce AFTER INSERT ON orders INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.announce();
BEGIN;
SELECT pg_temp.place();
SELECT outbox_enqueue('common', 'x', message_id => 'not there');
SELECT message_id, headers FROM outbox_enqueued();
SET LOCAL outbox.headers = '{"at": "commit"}';
INSERT INTO orders VALUES (1);
COMMIT;

-- The rules are those of the argument.
SET outbox.headers = 'traceparent=00-1';
\echo :SQLSTATE
SET outbox.headers = '{"a": 1';
SET outbox.headers = '["a"]';
SET outbox.headers = '"a"';
SET outbox.headers = '{"": 1}';
SET outbox.headers = '{"id": "mine"}';
\echo :SQLSTATE
SET outbox.headers = '{"cause": "mine"}';
SET outbox.headers = '{"a": null}';
SET outbox.headers = '{"a": {"b": 1}}';
SET outbox.headers = '{"a": "\u0000"}';
SELECT set_config('outbox.headers', jsonb_object_agg('h' || n, n)::text, false) FROM generate_series(1, 1001) n;
\echo :SQLSTATE
SELECT set_config('outbox.headers', jsonb_build_object('a', repeat('x', 1024 * 1024))::text, false);
\echo :SQLSTATE
SELECT set_config('outbox.headers', repeat('[', 100000), false);
\echo :SQLSTATE
ALTER ROLE current_user SET outbox.headers = '{"time": 1}';
\echo :SQLSTATE
SHOW outbox.headers;
-- What is too much only together is refused when it is together.
BEGIN;
SELECT length(set_config('outbox.headers', jsonb_object_agg('h' || n, n)::text, true)) FROM generate_series(1, 1000) n;
SELECT outbox_enqueue('common', 'x', '{"h1": "own"}', 'a thousand');
SELECT outbox_enqueue('common', 'x', '{"one": "more"}');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT length(set_config('outbox.headers', jsonb_build_object('a', repeat('x', 600 * 1024))::text, true));
SELECT outbox_enqueue('common', 'x', jsonb_build_object('b', repeat('x', 600 * 1024)));
\echo :SQLSTATE
ROLLBACK;
