-- A whole handler in one statement: its parts are evaluated in the order in which they are written.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;
CREATE TABLE placed (id integer PRIMARY KEY, customer text, at timestamptz DEFAULT now());

-- Functions of a list are called from left to right.
BEGIN;
SELECT outbox_begin('list-1'), outbox_enqueue('list', 'a', NULL, 'm1'), outbox_enqueue('list', 'b', NULL, 'm2'), outbox_commit();
SELECT outbox_begin('list-2');
SELECT outbox_enqueue('list', 'c', NULL, 'm3'), outbox_enqueue_many('list', ARRAY['d', 'e'], message_ids => ARRAY['m4', 'm5']), outbox_commit();
SELECT outbox_begin('list-3') AS new, outbox_commit() AS messages, outbox_enqueue('list', 'f', NULL, 'm6');
SELECT message_id, cause, encode(body, 'escape') AS body FROM log WHERE dest = 'list' ORDER BY id;
ROLLBACK;

-- The handler: the insert is done only for a message that is new, and the messages are written behind it.
PREPARE handler (text, integer, text) AS
	WITH
		n AS MATERIALIZED (SELECT outbox_begin($1) AS new),
		i AS (INSERT INTO placed (id, customer) SELECT $2, $3 FROM n WHERE new RETURNING id, customer)
	SELECT outbox_enqueue('placed', jsonb_build_object('order', i.id, 'customer', i.customer)) IS NOT NULL AS enqueued,
		outbox_commit() AS messages
	FROM i;

-- However it is planned: custom and generic, in parallel, with JIT, with each kind of join.
CREATE FUNCTION pg_temp.try(name text, settings text) RETURNS TABLE (how text, first text, again text) AS $$
DECLARE
	id integer := 1 + coalesce((SELECT max(placed.id) FROM placed), 0);
	setting text;
BEGIN
	FOREACH setting IN ARRAY string_to_array(settings, ',') LOOP
		EXECUTE 'SET LOCAL ' || setting;
	END LOOP;
	how := name;
	first := 'nothing';
	again := 'nothing';
	EXECUTE format('EXECUTE handler(%L, %s, %L)', 'handler-' || id, id, 'Ada') INTO first;
	BEGIN
		EXECUTE format('EXECUTE handler(%L, %s, %L)', 'handler-' || id, id, 'Ada') INTO again;
	END;
	RETURN NEXT;
END
$$ LANGUAGE plpgsql;
BEGIN;
SELECT * FROM pg_temp.try('custom', 'plan_cache_mode = force_custom_plan');
SELECT * FROM pg_temp.try('generic', 'plan_cache_mode = force_generic_plan');
SELECT * FROM pg_temp.try('compiled', 'jit = on,jit_above_cost = 0,jit_optimize_above_cost = 0,jit_inline_above_cost = 0');
SELECT name AS force_parallel FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SELECT * FROM pg_temp.try('parallel', :'force_parallel' || ' = on,parallel_setup_cost = 0,parallel_tuple_cost = 0,min_parallel_table_scan_size = 0');
SELECT * FROM pg_temp.try('no nested loops', 'enable_nestloop = off,enable_material = off,enable_seqscan = off');
SELECT id, customer FROM placed ORDER BY id;
SELECT cause, encode(body, 'escape') AS body FROM log WHERE dest = 'placed' ORDER BY id;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'handler-%' ORDER BY 1;
COMMIT;

-- Rolled back it leaves nothing; a duplicate makes no row and no message.
BEGIN;
EXECUTE handler('handler-6', 6, 'Bob');
ROLLBACK;
EXECUTE handler('handler-6', 6, 'Bob');
EXECUTE handler('handler-6', 7, 'Bob');
EXPLAIN (COSTS OFF) EXECUTE handler('handler-7', 7, 'Cid');
-- What it costs is written down differently by each version of PostgreSQL.
EXPLAIN (ANALYZE) EXECUTE handler('handler-7', 7, 'Cid') \g /dev/null
SELECT id, customer FROM placed WHERE id > 5 ORDER BY id;

-- A cursor evaluates all that comes before the first row at once.
BEGIN;
DECLARE c CURSOR FOR SELECT outbox_begin('list-9'), outbox_enqueue('list', 'x', NULL, 'm9'), outbox_commit();
FETCH 1 FROM c;
COMMIT;

-- With more than one row, outbox_commit() would run at the first: messages are enqueued before, all together.
BEGIN;
WITH
	n AS MATERIALIZED (SELECT outbox_begin('handler-8') AS new),
	i AS (INSERT INTO placed SELECT g, 'many' FROM n, generate_series(11, 13) g WHERE new RETURNING id)
SELECT outbox_enqueue_many('placed', array_agg(to_jsonb(i.id) ORDER BY i.id)) AS enqueued, outbox_commit() AS messages
FROM i HAVING count(*) > 0;
COMMIT;
SELECT encode(body, 'escape') AS body, cause FROM log WHERE cause = 'handler-8' ORDER BY id;
DROP TABLE placed;
