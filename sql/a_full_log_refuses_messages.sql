-- outbox.max_log_size: if Redis is away for long, the log does not fill the disk.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- more than 1 MB, and too random to be compressed
SELECT count(outbox_enqueue('full', body))
FROM (SELECT string_agg(decode(md5(random()::text), 'hex'), '') AS body
	FROM generate_series(1, 40) n, generate_series(1, 2500) GROUP BY n) bodies;

SET outbox.max_log_size = '1MB';
\set VERBOSITY sqlstate
SELECT outbox_enqueue('full', 'x');
\set VERBOSITY default
SET outbox.max_log_size = '400kB';
\set VERBOSITY sqlstate
SELECT outbox_enqueue('full', 'x');
\set VERBOSITY default
-- A message without outgoing messages can be processed.
SELECT outbox_begin('full-1') AS is_new, outbox_commit() AS messages;
-- Each call reads the limit.
SET outbox.max_log_size = '1TB';
BEGIN;
SELECT outbox_enqueue('full', 'x', NULL, 'full-2');
ROLLBACK;
SET outbox.max_log_size = 0;
SELECT outbox_enqueue('full', 'x', NULL, 'full-3');
