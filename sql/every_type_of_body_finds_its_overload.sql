-- Drivers send arguments of several types: no call is ambiguous or finds the wrong overload.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;
CREATE DOMAIN pg_temp.short_text AS varchar(10);
CREATE DOMAIN pg_temp.document AS jsonb CHECK (jsonb_typeof(VALUE) = 'object');

-- jsonb is formatted again, text and json are unchanged, bytea is not text.
SELECT outbox_enqueue('types', '{"a":  1}', NULL, 'untyped literal');
SELECT outbox_enqueue('types', '{"a":  1}'::text, NULL, 'text');
SELECT outbox_enqueue('types', '{"a":  1}'::json, NULL, 'json');
SELECT outbox_enqueue('types', '{"a":  1}'::jsonb, NULL, 'jsonb');
SELECT outbox_enqueue('types', '\x00ff'::bytea, NULL, 'bytea');
SELECT outbox_enqueue('types', '\x00ff', NULL, 'untyped hexadecimal');
SELECT outbox_enqueue('types', 'v'::varchar, NULL, 'varchar');
SELECT outbox_enqueue('types', 'c '::char(5), NULL, 'char');
SELECT outbox_enqueue('types', 'n'::name, NULL, 'name');
SELECT outbox_enqueue('types', 'd'::pg_temp.short_text, NULL, 'domain of varchar');
SELECT outbox_enqueue('types', '{"a":  1}'::pg_temp.document, NULL, 'domain of jsonb');
SELECT outbox_enqueue('types', CASE WHEN true THEN 'case' END, NULL, 'CASE');
SELECT outbox_enqueue('types', 'a' || 1, NULL, 'concatenation');
SELECT outbox_enqueue('types', json_build_object('a', 1), NULL, 'json_build_object');
SELECT outbox_enqueue('types', row_to_json(r), NULL, 'row_to_json') FROM (SELECT 1 AS a) r;
SELECT outbox_enqueue('types', to_jsonb(ARRAY[1, 2]), NULL, 'to_jsonb');
SELECT outbox_enqueue(dest => 'types', body => 'named', message_id => 'named arguments');
SELECT outbox_enqueue('types'::varchar, 'x', '{"h": 1}'::jsonb, 'message id of varchar'::varchar);

PREPARE untyped AS SELECT outbox_enqueue($1, $2, $3, $4, $5);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped';
EXECUTE untyped('types', '\x01', '{"h": 1}', 'untyped parameters', NULL);

SELECT message_id, encode(body, 'escape') AS body FROM log WHERE dest = 'types' ORDER BY id;

-- What has no implicit cast to any of them is an error, not a guess.
SELECT outbox_enqueue('types', 1);
\echo :SQLSTATE
SELECT outbox_enqueue('types', '00000000-0000-0000-0000-000000000001'::uuid);
\echo :SQLSTATE

-- Without an id, a new UUID is generated, which the call returns.
BEGIN;
SELECT outbox_enqueue('types', 'x') AS id \gset
SELECT :'id' ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS is_uuid;
SELECT encode(body, 'escape') AS body FROM log WHERE message_uuid = :'id';
SELECT count(*), count(DISTINCT id)
FROM (SELECT outbox_enqueue('types', 'x') AS id FROM generate_series(1, 100)) ids;
ROLLBACK;

-- outbox_begin(): uuid and text are one and the same id.
CREATE DOMAIN pg_temp.message_key AS text;
BEGIN;
SELECT outbox_begin('00000000-0000-0000-0000-00000000ABCD'::uuid);
SELECT outbox_commit();
SELECT outbox_begin('00000000-0000-0000-0000-00000000abcd');
SELECT outbox_begin('00000000-0000-0000-0000-00000000abcd'::varchar);
SELECT outbox_begin('00000000-0000-0000-0000-00000000abcd'::pg_temp.message_key);
SELECT outbox_begin('00000000-0000-0000-0000-00000000abcd'::uuid, endpoint => 'default', concurrency => 'pessimistic');
SELECT outbox_begin('00000000-0000-0000-0000-00000000ABCD');
ROLLBACK;
PREPARE untyped_begin AS SELECT outbox_begin($1, $2, $3);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped_begin';
SELECT outbox_begin(1);
\echo :SQLSTATE
