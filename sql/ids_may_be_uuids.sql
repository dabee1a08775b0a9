-- An id may be a uuid wherever it may be text, and no call becomes ambiguous.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP VIEW log AS
	SELECT coalesce(message_uuid::text, message_id) AS message_id, message_uuid, dest FROM (
		SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
		SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3) l;
CREATE DOMAIN pg_temp.order_id AS uuid;
CREATE DOMAIN pg_temp.order_name AS varchar(40);
\set u '\'00000000-0000-0000-0000-00000000ABCD\''

-- A uuid and its text are one and the same id; each type of body takes both.
SELECT outbox_enqueue('uuids', 'x', message_id => :u::uuid);
SELECT outbox_enqueue('uuids', 'x'::text, NULL, :u::uuid);
SELECT outbox_enqueue('uuids', '1'::json, '{"h": 1}', :u::uuid);
SELECT outbox_enqueue('uuids', '1'::jsonb, '{"h": 1}'::jsonb, :u::uuid, now());
SELECT outbox_enqueue('uuids', '\x01'::bytea, message_id => :u::uuid, deliver_at => NULL);
SELECT outbox_enqueue(dest => 'uuids', body => 'x', headers => '{"h": 1}', message_id => :u::pg_temp.order_id);
SELECT outbox_enqueue('uuids', 'x', message_id => 'a domain'::pg_temp.order_name);
SELECT outbox_enqueue('uuids', 'x', NULL, 'varchar'::varchar);
SELECT outbox_enqueue('uuids', 'x', message_id => CASE WHEN true THEN gen_random_uuid() END) ~ '^[0-9a-f-]{36}$' AS is_uuid;

-- An id that looks like a uuid is stored as one, and comes back as it was given; any other is stored as text.
BEGIN;
SELECT count(outbox_enqueue('looks', 'x', message_id => id)) FROM unnest(ARRAY[
	'0123abcd-4567-89ef-0123-456789abcdef', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
	'0123ABCD-4567-89ef-0123-456789abcdef', '{0123abcd-4567-89ef-0123-456789abcdef}', '0123abcd456789ef0123456789abcdef',
	'0123abcd-4567-89ef-0123-456789abcdeg', '0123abcd-4567-89ef-0123-456789abcde ', '0123abcd-4567-89ef-01234-56789abcdef',
	'0123abcd-4567-89ef-0123-456789abcd' || chr(233), '0123abcd-4567-89ef-0123-456789abcde' || chr(233)]) id;
SELECT message_id, message_uuid IS NOT NULL AS as_uuid FROM log WHERE dest = 'looks' ORDER BY message_id COLLATE "C";
SELECT count(*) AS come_back FROM outbox_enqueued() JOIN log USING (message_id) WHERE outbox_enqueued.dest = 'looks';
ROLLBACK;

-- Untyped literals are text, as before; NULL of any type is no id.
SELECT outbox_enqueue('uuids', 'x', message_id => 'untyped');
SELECT outbox_enqueue('uuids', 'x', '{"h": 1}', 'untyped');
SELECT outbox_enqueue('uuids', 'x', '{"h": 1}', 'untyped', NULL);
SELECT bool_and(id ~ '^[0-9a-f-]{36}$') AS all_new
FROM (VALUES (outbox_enqueue('uuids', 'x')), (outbox_enqueue('uuids', 'x', NULL)), (outbox_enqueue('uuids', 'x', '{}')),
	(outbox_enqueue('uuids', 'x', NULL, NULL)), (outbox_enqueue('uuids', 'x', message_id => NULL)),
	(outbox_enqueue('uuids', 'x', headers => '{}')), (outbox_enqueue('uuids', 'x', NULL, NULL, NULL)),
	(outbox_enqueue('uuids', 'x', deliver_at => NULL)), (outbox_enqueue('uuids', 'x', message_id => NULL::uuid))) ids (id);

-- Parameters of drivers, without a type and with one.
PREPARE untyped AS SELECT outbox_enqueue($1, $2, message_id => $3);
PREPARE typed (text, jsonb, uuid) AS SELECT outbox_enqueue($1, $2, message_id => $3);
PREPARE many AS SELECT outbox_enqueue_many($1, $2, $3, $4, $5);
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY name;
EXECUTE untyped('uuids', 'x', 'untyped parameter');
EXECUTE typed('uuids', '{}', :u);
SELECT message_id, count(*) FROM log WHERE dest = 'uuids' AND message_id ~ '^0000|[un]' AND length(message_id) < 20
	OR message_id = lower(:u) GROUP BY 1 ORDER BY 1;

-- Anything else is an error, not a guess.
SELECT outbox_enqueue('uuids', 'x', message_id => 42);
\echo :SQLSTATE
SELECT outbox_enqueue('uuids', 'x', NULL, now());
\echo :SQLSTATE
SELECT outbox_enqueue('uuids', 'x', message_id => ''::text);
\echo :SQLSTATE

-- Begin and wait.
BEGIN;
SELECT outbox_begin(:u::uuid), outbox_enqueue('uuids', 'caused', NULL, 'caused'), outbox_commit();
COMMIT;
SELECT outbox_wait(:u::uuid), outbox_wait(lower(:u)), outbox_wait(:u::uuid, timeout => '30 s'), outbox_wait(:u::uuid, 'default', interval '30 s');
SELECT outbox_wait(gen_random_uuid()) AS unknown, outbox_wait('uuid-1') AS unknown;
SELECT outbox_wait(NULL);
\echo :SQLSTATE
SELECT outbox_wait(NULL::uuid);
\echo :SQLSTATE

-- Dead messages.
SELECT outbox_retry(), outbox_retry('uuids'), outbox_retry('uuids', 'x'), outbox_retry('uuids', NULL), outbox_retry(NULL, NULL), outbox_retry(message_id => 'x');
SELECT outbox_retry('uuids', :u::uuid), outbox_retry(message_id => :u::uuid), outbox_retry(dest => 'uuids', message_id => :u::uuid), outbox_retry(NULL, :u::uuid);
SELECT outbox_discard('uuids', 'x'), outbox_discard('uuids', :u::uuid), outbox_discard(dest => 'uuids', message_id => :u::uuid);
