-- A cursor calls the function when a row is fetched, a cursor WITH HOLD at COMMIT at the latest.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

BEGIN;
DECLARE c CURSOR FOR SELECT outbox_enqueue('cursor', 'x', NULL, 'plain-' || n) FROM generate_series(1, 100) n;
FETCH 2 FROM c;
MOVE 1 IN c;
COMMIT;
SELECT message_id FROM log WHERE dest = 'cursor' ORDER BY id;

-- fetched on both sides of a savepoint that is rolled back
BEGIN;
SELECT outbox_begin('cursor-1');
DECLARE c CURSOR FOR SELECT outbox_enqueue('cursor 1', 'x', NULL, 'cursor-' || n) FROM generate_series(1, 100) n;
FETCH 1 FROM c;
SAVEPOINT a;
FETCH 1 FROM c;
ROLLBACK TO a;
FETCH 1 FROM c;
CLOSE c;
SELECT outbox_commit();
COMMIT;
SELECT message_id, cause FROM log WHERE dest = 'cursor 1' ORDER BY id;

-- WITH HOLD: all of them at COMMIT, after outbox_commit()
BEGIN;
SELECT outbox_begin('cursor-2');
DECLARE c CURSOR WITH HOLD FOR SELECT outbox_enqueue('cursor 2', 'x', NULL, 'hold-' || n) FROM generate_series(1, 3) n;
FETCH 1 FROM c;
SELECT outbox_commit();
COMMIT;
SELECT message_id, cause FROM log WHERE dest = 'cursor 2' ORDER BY id;
FETCH ALL FROM c;
CLOSE c;

-- begin and commit, row by row
BEGIN;
DECLARE c CURSOR FOR SELECT outbox_begin('cursor-' || n) AS is_new, outbox_commit() AS messages FROM generate_series(1, 10) n;
FETCH 3 FROM c;
COMMIT;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'cursor-%' ORDER BY 1;
