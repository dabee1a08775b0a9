-- Many calls from one statement, from one function, and in many savepoints.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

BEGIN;
SELECT outbox_begin('bulk-1');
SELECT count(outbox_enqueue('bulk 1', n::text)) FROM generate_series(1, 10000) n;
SELECT outbox_commit();
COMMIT;

DO $$
BEGIN
	PERFORM outbox_begin('bulk-2');
	FOR n IN 1..10000 LOOP
		PERFORM outbox_enqueue('bulk 2', n::text, '{"h": 1}');
	END LOOP;
	RAISE NOTICE 'messages: %', outbox_commit();
END
$$;

-- every other savepoint is rolled back
DO $$
BEGIN
	PERFORM outbox_begin('bulk-3');
	FOR n IN 1..2000 LOOP
		BEGIN
			PERFORM outbox_enqueue('bulk 3', n::text);
			IF n % 2 = 0 THEN
				RAISE EXCEPTION USING ERRCODE = 'P0042';
			END IF;
		EXCEPTION WHEN SQLSTATE 'P0042' THEN
			NULL;
		END;
	END LOOP;
	RAISE NOTICE 'messages: %', outbox_commit();
END
$$;

-- All are stored, each once, in the order of the calls, with ids of their own.
SELECT dest, count(*), count(DISTINCT message_uuid) AS ids, count(DISTINCT tx) AS transactions,
	bool_and(place = n) AS in_order
FROM (SELECT *, convert_from(body, 'UTF8')::integer AS n, row_number() OVER (PARTITION BY dest ORDER BY id) AS place
	FROM log WHERE dest IN ('bulk 1', 'bulk 2')) m
GROUP BY dest ORDER BY dest;
SELECT count(*), count(*) FILTER (WHERE convert_from(body, 'UTF8')::integer % 2 = 0) AS rolled_back
FROM log WHERE dest = 'bulk 3';

-- As many incoming messages leave nothing behind in memory.
DO $$
DECLARE
	left_behind bigint;
BEGIN
	FOR n IN 1..5000 LOOP
		PERFORM outbox_begin('bulk-4-' || n), outbox_commit();
	END LOOP;
	SELECT used_bytes INTO left_behind FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
	RAISE NOTICE 'in memory: %', CASE WHEN left_behind < 100000 THEN 'little' ELSE left_behind || ' bytes' END;
END
$$;
