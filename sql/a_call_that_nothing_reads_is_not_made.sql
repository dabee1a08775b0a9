-- PostgreSQL decides which parts of a statement it evaluates: what docs/reference.md says
-- of the places where a call may stand.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP TABLE job AS SELECT n AS id FROM generate_series(1, 3) n;
ALTER TABLE job ADD PRIMARY KEY (id);

-- Not called.
BEGIN;
WITH m AS (SELECT outbox_enqueue('jobs', id::text) FROM job) SELECT count(*) FROM job;
SELECT EXISTS (SELECT outbox_enqueue('jobs', id::text) FROM job);
SELECT id FROM job LEFT JOIN (SELECT id, max(outbox_enqueue('jobs', id::text)) FROM job GROUP BY id) m USING (id) ORDER BY id;
SELECT count(*) AS enqueued FROM outbox_enqueued();
ROLLBACK;

-- For a row that is left out, and not for those that are not fetched.
CREATE FUNCTION pg_temp.enqueue() RETURNS text LANGUAGE sql AS $$ SELECT outbox_enqueue('jobs', id::text) FROM job ORDER BY id $$;
BEGIN;
INSERT INTO job SELECT length(outbox_enqueue('jobs', '1')) / 36 ON CONFLICT DO NOTHING;
SELECT pg_temp.enqueue() IS NOT NULL AS enqueued;
SELECT convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;

-- For each row, as advised.
BEGIN;
WITH i AS (UPDATE job SET id = id + 10 WHERE id < 3 RETURNING outbox_enqueue('jobs', id::text)) SELECT 1 AS one;
INSERT INTO job SELECT n FROM generate_series(3, 4) n ON CONFLICT DO NOTHING RETURNING outbox_enqueue('jobs', id::text) IS NOT NULL AS enqueued;
WITH j AS (SELECT id FROM job ORDER BY id LIMIT 1) SELECT outbox_enqueue('jobs', id::text) IS NOT NULL AS enqueued FROM j;
SELECT convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;
DROP FUNCTION pg_temp.enqueue;
DROP TABLE job;
