-- The views for administrators.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- A dispatcher that is off publishes nothing, so what is pending stays so.
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET outbox.dispatch = off', current_database()); END $$;
DO $$
BEGIN
	FOR n IN 1..18000 LOOP
		EXIT WHEN (SELECT dispatcher_state = 'off' FROM outbox.status);
		PERFORM pg_sleep(0.01);
	END LOOP;
END
$$;
SELECT pending AS pending_before FROM outbox.status \gset
BEGIN;
SELECT outbox_begin('views-1');
SELECT outbox_enqueue('views', 'body', '{"h": 1}', 'views-1-out');
SELECT outbox_enqueue('views', '', NULL, 'views-1-empty', '2999-01-01');
SELECT outbox_enqueue('views', repeat('large', 100000), NULL, 'views-1-large');
-- A transaction does not see its own messages there: they are not committed.
SELECT count(*) FROM outbox.pending WHERE dest = 'views';
SELECT outbox_commit();
SELECT endpoint, msgid, tx = pg_current_xact_id() AS mine, state FROM outbox.records WHERE msgid LIKE 'views-%';
COMMIT;
SELECT message_id, dest, cause, headers, body_size, state, attempts, next_attempt, last_error
FROM outbox.pending WHERE dest = 'views' ORDER BY id;
-- A message from pg_restore is pending as well, and comes before the others.
INSERT INTO outbox.log_3 (id, tx, enqueued_at, database, message_id, dest, body) VALUES (0, '1', '2020-01-02', 1, 'views-restored', 'views', 'x');
SELECT message_id FROM outbox.pending WHERE dest = 'views' ORDER BY id;
SELECT dispatcher_pid IS NOT NULL AS dispatcher, dispatcher_state, pending - :pending_before AS pending, oldest_pending >= '0' AS oldest_pending, problem
FROM outbox.status;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET outbox.dispatch', current_database()); END $$;

-- The rest of the row depends on Redis: here only its form.
SELECT count(*) AS rows, count(pending) AS pending, count(sent) AS sent, count(duplicates) AS duplicates,
	count(deferred) AS deferred, count(scheduled) AS scheduled, count(dead) AS dead, count(windows) AS windows, bool_and(log_size > 0) AS log_size
FROM outbox.status;
SELECT dispatcher_state IN ('starting', 'idle', 'publishing', 'waiting for Redis', 'waiting for the lease', 'off', 'not running') AS state,
	redis_state IN ('up', 'down', 'unknown') AS redis, coalesce(problem ~ '^[A-Z0-9]', true) AS problem
FROM outbox.status;

-- They show the present state, also to a transaction with an old snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'views-%' ORDER BY 1;
SELECT outbox_begin('views-2'), outbox_commit();
SELECT msgid FROM outbox.records WHERE msgid LIKE 'views-%' ORDER BY 1;
COMMIT;
-- names as long as they may be
SELECT outbox_create_endpoint(string_agg(md5(n::text), '' ORDER BY n)) FROM generate_series(1, 32) n;
BEGIN;
SELECT outbox_begin(string_agg(md5((-n)::text), '' ORDER BY n), string_agg(md5(n::text), '' ORDER BY n)), outbox_commit() FROM generate_series(1, 32) n;
COMMIT;
SELECT left(endpoint, 8) AS endpoint, length(endpoint), left(msgid, 8) AS msgid, length(msgid) FROM outbox.records WHERE length(msgid) = 1024 AND endpoint <> 'default';
SELECT outbox_drop_endpoint(string_agg(md5(n::text), '' ORDER BY n)) FROM generate_series(1, 32) n;

-- They cannot be written to.
INSERT INTO outbox.records DEFAULT VALUES;
\echo :SQLSTATE
DELETE FROM outbox.pending;
\echo :SQLSTATE
