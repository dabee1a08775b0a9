-- begin ... commit, begin ... commit: each record has its own messages, all of them or none.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

BEGIN;
SELECT outbox_begin('several-1');
SELECT outbox_enqueue('several', 'a', NULL, '1a'), outbox_enqueue('several', 'b', NULL, '1b');
SELECT outbox_commit();
SELECT outbox_enqueue('several', 'between', NULL, 'between');
SELECT outbox_begin('several-2', concurrency => 'pessimistic');
SELECT outbox_commit();
SELECT outbox_begin('several-3');
SELECT outbox_enqueue('several', 'c', NULL, '3c');
SELECT outbox_commit();
-- What this transaction has processed itself is a duplicate as well.
SELECT outbox_begin('several-1');
SELECT outbox_commit();
SELECT outbox_begin('several-2', concurrency => 'pessimistic');
SELECT outbox_begin('several-3', concurrency => 'pessimistic');
SELECT outbox_begin('several-4');
SELECT outbox_enqueue('several', 'd', NULL, '4d'), outbox_enqueue('several', 'e', NULL, '4e'), outbox_enqueue('several', 'f', NULL, '4f');
SELECT outbox_commit();
COMMIT;

SELECT msgid FROM outbox.records WHERE msgid LIKE 'several-%' ORDER BY 1;
-- In the order of the calls; messages of one record share its cause.
SELECT cause, message_id
FROM log WHERE dest = 'several' ORDER BY id;
SELECT count(DISTINCT cause) AS causes, count(DISTINCT tx) AS transactions FROM log WHERE dest = 'several';

-- All or none.
BEGIN;
SELECT outbox_begin('several-5'), outbox_commit();
SELECT outbox_begin('several-6'), outbox_enqueue('several', 'x', NULL, '6x'), outbox_commit();
ROLLBACK;
SELECT count(*) FROM outbox.records WHERE msgid IN ('several-5', 'several-6');
SELECT count(*) FROM log WHERE message_id = '6x';

-- A thousand in one statement.
SELECT count(*) FILTER (WHERE is_new) AS new, sum(messages) AS messages
FROM (SELECT outbox_begin('several-' || n) AS is_new, outbox_enqueue('thousand', 'x') AS id, outbox_commit() AS messages
	FROM generate_series(1001, 2000) n) s;
SELECT count(*), count(DISTINCT msgid) FROM outbox.records WHERE msgid LIKE 'several-____';
