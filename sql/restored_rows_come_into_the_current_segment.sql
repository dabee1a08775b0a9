-- pg_restore copies rows into the segments that they were dumped from; a trigger redirects them to the current one.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;
SELECT segment AS log_segment FROM outbox.ring WHERE ring = 'log' AND state = 'current' \gset
SELECT segment AS record_segment FROM outbox.ring WHERE ring = 'record' AND state = 'current' \gset
BEGIN;
SELECT count(outbox_enqueue('earlier', 'x')) FROM generate_series(1, 200);
SELECT max(id) AS last_id FROM log \gset
ROLLBACK;
SELECT (:log_segment + 2) % 4 AS other_log, (:record_segment + 3) % 8 AS other_record \gset

-- as pg_restore does, while the message cannot have been sent yet
BEGIN;
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, key, message_id, dest, cause, headers, body)
	VALUES (100, '1', '2020-01-02 03:04:05+00', 1, '00000000-0000-0000-0000-0000000000aa', 'restored-1', 'restored', 'cause', '{"h": 1}', '\x00ff');
COPY outbox.log_:other_log (id, tx, enqueued_at, database, key, message_id, dest, cause, headers, body) FROM stdin;
101	1	2020-01-02 03:04:06+00	1	\N	restored-2	restored	\N	\N	
\.
INSERT INTO outbox.log_:log_segment (id, tx, enqueued_at, database, message_id, dest, body)
	VALUES (102, '1', '2020-01-02 03:04:07+00', 1, 'restored-3', 'restored', repeat('large', 100000)::bytea);
SELECT count(*) AS left_there FROM outbox.log_:other_log WHERE dest = 'restored';
-- with the transaction of the restore, or they would never be found, and with ids of their own; the rest as it was
SELECT id > :last_id AS other_id, tx = pg_current_xact_id() AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AS of_this_transaction, extract(epoch FROM enqueued_at) AS enqueued_at, key, message_id, dest, cause, headers, length(body)
FROM outbox.log_:log_segment WHERE dest = 'restored' ORDER BY id;
SELECT outbox.is_pending(tx) FROM outbox.log_:log_segment WHERE dest = 'restored';
ROLLBACK;
SELECT count(*) FROM log WHERE dest = 'restored';

-- What has not begun is pending; what ended before the newest window in Redis is not.
SELECT outbox.is_pending('9223372036854775807'), outbox.is_pending('1'), outbox.is_pending(NULL);
BEGIN;
SELECT outbox.is_pending(pg_current_xact_id());
ROLLBACK;

-- records
BEGIN;
SELECT outbox_begin('restored-1'), outbox_commit();
COMMIT;
SELECT key AS key FROM outbox.record_:record_segment WHERE msgid = 'restored-1' \gset
BEGIN;
-- one that is there already, a new one, the new one once more
INSERT INTO outbox.record_:other_record VALUES (:'key', '1', 'default', 'restored-1');
COPY outbox.record_:other_record FROM stdin;
00000000-0000-0000-0000-0000000000bb	1	elsewhere	restored-2
00000000-0000-0000-0000-0000000000bb	1	elsewhere	restored-2
\.
SELECT count(*) AS left_there FROM outbox.record_:other_record;
SELECT endpoint, msgid, segment = :record_segment AS in_the_current_segment, tx = '0' AS of_another_transaction, state
FROM outbox.records WHERE msgid LIKE 'restored-%' ORDER BY msgid;
COMMIT;
-- A record that comes with its key makes a duplicate again.
BEGIN;
SELECT outbox_begin('restored-3'), outbox_commit();
SELECT key AS key FROM outbox.record_:record_segment WHERE msgid = 'restored-3' \gset
ROLLBACK;
INSERT INTO outbox.record_:other_record VALUES (:'key', '1', 'default', 'restored-3');
SELECT outbox_begin('restored-3');

-- What was deferred starts again as an ordinary message, scheduled ones with their time.
BEGIN;
INSERT INTO outbox.deferred (id, message_id, dest, cause, enqueued_at, headers, body, state, attempts, next_attempt, last_error) VALUES
	(105, 'restored-5', 'restored', 'cause', '2020-01-02', '{"h": 1}', 'x', 'waiting', 3, '2999-01-01', 'WRONGTYPE'),
	(106, 'restored-6', 'restored', NULL, '2020-01-02', NULL, '', 'scheduled', 0, '2999-01-01 00:00:00+00', NULL),
	(107, 'restored-7', 'restored', NULL, '2020-01-02', NULL, 'x', 'dead', 10, '2020-01-02', 'WRONGTYPE');
SELECT count(*) AS left_there FROM outbox.deferred WHERE dest = 'restored';
SELECT id > :last_id AS other_id, message_id, cause, headers, body, extract(epoch FROM deliver_at) AS deliver_at, tx = pg_current_xact_id() AS of_this_transaction
FROM outbox.log_:log_segment WHERE dest = 'restored' ORDER BY id;
ROLLBACK;

-- The triggers fire in a subscriber and in a restore with triggers disabled, too.
SELECT substring(tgrelid::regclass::text FROM '^outbox[.](log|record|history)_[0-9]+$') AS ring, tgenabled, count(*)
FROM pg_trigger WHERE tgname = 'redirect_restored' AND tgrelid::regclass::text ~ '(log|record|history)_' GROUP BY 1, 2 ORDER BY 1;
-- Internal state of another outbox is not replicated.
SELECT rtrim(tgrelid::regclass::text, '_0123456789') COLLATE "C" AS tables, tgenabled, count(*) FROM pg_trigger WHERE tgname = 'refuse_replicated' GROUP BY 1, 2 ORDER BY 1;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, message_id, dest, body) VALUES (103, '1', now(), 1, 'restored-4', 'restored', '');
SELECT count(*) AS left_there FROM outbox.log_:other_log WHERE dest = 'restored';
ROLLBACK;

-- What is incomplete is refused.
\set VERBOSITY sqlstate
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, body) VALUES (104, '1', now(), '');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, body) VALUES (104, '1', now(), 1, '');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, message_uuid, message_id, body) VALUES (104, '1', now(), 1, gen_random_uuid(), 'restored-4', '');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, message_id, dest, body, msgid) VALUES (104, '1', now(), 1, 'restored-4', 'd', '', 'm');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, message_id, dest) VALUES (104, '1', now(), 1, 'restored-4', 'd');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, endpoint, msgid) VALUES (104, '1', now(), 1, 'e', 'm');
INSERT INTO outbox.log_:other_log (id, tx, enqueued_at, database, key, endpoint, msgid, cause) VALUES (104, '1', now(), 1, gen_random_uuid(), 'e', 'm', 'm');
INSERT INTO outbox.record_:other_record (tx, endpoint, msgid) VALUES ('1', 'default', 'restored-5');
INSERT INTO outbox.deferred (id, message_id) VALUES (105, 'restored-5');
\set VERBOSITY default

-- What a dump contains.
SELECT c.relname, condition <> '' AS in_part
FROM pg_extension e, unnest(e.extconfig, e.extcondition) x (relation, condition) JOIN pg_class c ON c.oid = x.relation
WHERE e.extname = 'outbox' ORDER BY c.relname COLLATE "C";
