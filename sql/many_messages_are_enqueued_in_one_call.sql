-- outbox_enqueue_many(): all of an array or nothing, however the result is fetched.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;
CREATE TEMP VIEW many AS
	SELECT row_number() OVER (ORDER BY id) AS n, coalesce(message_uuid::text, message_id) AS message_id, cause, headers, encode(body, 'escape') AS body, deliver_at FROM log WHERE dest = 'many';

-- Each type of body, in the order of the array, each message with an id of its own.
BEGIN;
SELECT outbox_enqueue_many('many', ARRAY['a', 'b', '']);
SELECT outbox_enqueue_many('many', ARRAY['{"a":  1}', 'null']::json[]);
SELECT outbox_enqueue_many('many', ARRAY['{"a":  1}', 'null']::jsonb[]);
SELECT outbox_enqueue_many('many', ARRAY['\x00ff', '']::bytea[]);
SELECT outbox_enqueue_many('many', ARRAY['v', 'w']::varchar[]);
SELECT outbox_enqueue_many('many', '{"an untyped literal","C:\\\\temp"}');
SELECT outbox_enqueue_many('many', '[7:8]={x,y}'::text[]);
SELECT n, body, cause, headers, deliver_at FROM many ORDER BY n;
SELECT count(DISTINCT message_id) = count(*) AS all_differ, bool_and(message_id ~ '^[0-9a-f-]{36}$') AS are_uuids FROM many;
ROLLBACK;
SELECT count(*) FROM many;

-- Headers for all, or for each; ids; a time; the open message.
BEGIN;
SELECT outbox_begin('many-1');
SELECT outbox_enqueue_many('many', ARRAY['a', 'b'], '{"to": "all"}');
SELECT outbox_enqueue_many('many', ARRAY['c', 'd', 'e'], '[{"to": "c"}, null, {}]', ARRAY['id c', 'id d', 'id e']);
SELECT outbox_enqueue_many(dest => 'many', bodies => ARRAY['f'], message_ids => ARRAY['id f'], deliver_at => '2500-01-01 00:00Z');
SELECT outbox_enqueue_many('many', ARRAY['g'], deliver_at => '-infinity');
SELECT outbox_enqueue_many('many', '{}'::text[]), outbox_enqueue_many('many', '{}'), outbox_enqueue_many('many', '{}', '[]', '{}');
SELECT outbox_commit();
SELECT n, body, CASE WHEN length(message_id) < 36 THEN message_id END AS id, cause, headers, deliver_at AT TIME ZONE 'UTC' AS deliver_at FROM many ORDER BY n;
ROLLBACK;

-- A cursor that is read in part enqueues all of them; outbox_enqueue() for each row does not.
BEGIN;
DECLARE one_call CURSOR FOR SELECT outbox_enqueue_many('many', array_agg('many ' || g)), generate_series(1, 3) FROM generate_series(1, 3) g;
FETCH 1 FROM one_call;
DECLARE rows CURSOR FOR SELECT outbox_enqueue('many', 'row ' || g) IS NOT NULL AS enqueued FROM generate_series(1, 3) g;
FETCH 1 FROM rows;
SELECT body FROM many ORDER BY n;
ROLLBACK;

-- A message that is refused alone is refused among many: the error names it, and none is stored.
SELECT outbox_enqueue_many(NULL, ARRAY['x']);
\echo :SQLSTATE
SELECT outbox_enqueue_many('outbox:x', ARRAY['x']);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', NULL);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', NULL]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY[['x', 'y'], ['z', 'w']]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY[1, 2]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], message_ids => ARRAY['1']);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], message_ids => ARRAY['1', NULL]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], message_ids => ARRAY['1', '']);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], message_ids => ARRAY['1', repeat('m', 1025)]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], message_ids => ARRAY[['1', '2']]);
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], '[{"a": 1}]');
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], '[{"a": 1}, {"id": 1}]');
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], '[{"a": 1}, 7]');
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', 'y'], '"text"');
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x'], deliver_at => 'infinity');
\echo :SQLSTATE
SELECT outbox_enqueue_many('many', ARRAY['x', repeat('x', 64 * 1024 * 1024 + 1)]);
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT outbox_enqueue_many('many', ARRAY['x']);
\echo :SQLSTATE
ROLLBACK;
SELECT count(*) FROM many;

-- Many of them need no more memory than one.
BEGIN;
SELECT outbox_enqueue_many('many', array_fill(repeat('x', 1000), ARRAY[20000]));
SELECT count(*), count(DISTINCT message_id) FROM many;
ROLLBACK;
