-- The functions are marked PARALLEL UNSAFE; calling them in a parallel query, from a function marked otherwise, is an error.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TABLE many AS SELECT n FROM generate_series(1, 20000) n;
ANALYZE many;
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET parallel_leader_participation = on;

EXPLAIN (COSTS OFF) SELECT sum(n) FROM many WHERE n % 2 = 0;
EXPLAIN (COSTS OFF) SELECT sum(length(outbox_enqueue('parallel', n::text))) FROM many WHERE n % 5000 = 0;
BEGIN;
SELECT count(outbox_enqueue('parallel', n::text)) FROM many WHERE n % 5000 = 0;
SELECT outbox_begin('parallel-' || n) AS is_new, outbox_commit() AS messages FROM many WHERE n <= 3;
ROLLBACK;

CREATE FUNCTION enqueues() RETURNS text LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT outbox_enqueue('parallel', 'x') $$;
CREATE FUNCTION begins() RETURNS boolean LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT outbox_begin('parallel-1') $$;
CREATE FUNCTION commits() RETURNS integer LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT outbox_commit() $$;
-- The error may come from a worker or from the leader.
\set VERBOSITY sqlstate
SELECT count(enqueues()) FROM many;
SELECT count(begins()) FROM many;
SELECT count(commits()) FROM many;
\set VERBOSITY default
SELECT count(*) FROM outbox.pending WHERE dest = 'parallel';
SELECT count(*) FROM outbox.records WHERE msgid LIKE 'parallel-%';

-- A transaction with an open message may run parallel queries.
BEGIN;
SELECT outbox_begin('parallel-1');
SELECT outbox_enqueue('parallel', 'x', NULL, 'parallel-1-out');
SELECT sum(n) FROM many WHERE n % 2 = 0;
SELECT outbox_commit();
SELECT sum(n) FROM many WHERE n % 2 = 0;
COMMIT;
SELECT outbox_begin('parallel-1');

DROP TABLE many;
DROP FUNCTION enqueues, begins, commits;
