-- A message that was processed is recognised when it is delivered again.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;
CREATE TEMP TABLE users (name text);
SELECT duplicates AS duplicates_before FROM outbox.status \gset

BEGIN;
SELECT outbox_begin('dup-1');
INSERT INTO users VALUES ('anna');
SELECT outbox_enqueue('user-events', 'UserCreated', NULL, 'dup-1-out');
SELECT outbox_commit();
COMMIT;

-- The redelivery does nothing.
BEGIN;
SELECT outbox_begin('dup-1');
SELECT outbox_commit();
COMMIT;
BEGIN;
SELECT outbox_begin('dup-1', concurrency => 'pessimistic');
COMMIT;
-- Also under autocommit: nothing is open after a duplicate.
SELECT outbox_begin('dup-1');

SELECT count(*) FROM users;
SELECT dest, message_id, cause, encode(body, 'escape') AS body FROM log WHERE cause = 'dup-1';
SELECT duplicates - :duplicates_before AS duplicates_counted FROM outbox.status;

-- Ids are compared byte by byte.
BEGIN;
SELECT outbox_begin('DUP-1'), outbox_commit();
SELECT outbox_begin('dup-1 '), outbox_commit();
SELECT outbox_begin(' dup-1'), outbox_commit();
SELECT outbox_begin('dup-'), outbox_commit();
ROLLBACK;

-- What was rolled back was not processed.
BEGIN;
SELECT outbox_begin('dup-2');
SELECT outbox_commit();
ROLLBACK;
BEGIN;
SELECT outbox_begin('dup-2', concurrency => 'pessimistic');
ROLLBACK;
BEGIN;
SELECT outbox_begin('dup-2');
SELECT outbox_enqueue('user-events', 'x', NULL, 'dup-2-out');
SELECT outbox_commit();
COMMIT;
SELECT outbox_begin('dup-2');

-- A message may have no outgoing ones, or a long id.
BEGIN;
SELECT outbox_begin(repeat('dup-', 256));
SELECT outbox_commit();
COMMIT;
SELECT outbox_begin(repeat('dup-', 256));
BEGIN;
SELECT outbox_begin(repeat('dup-', 255) || 'dup_'), outbox_commit();
ROLLBACK;

SELECT endpoint, left(msgid, 10) AS msgid, length(msgid), count(*)
FROM outbox.records WHERE msgid LIKE 'dup-%' GROUP BY endpoint, msgid ORDER BY msgid COLLATE "C";
