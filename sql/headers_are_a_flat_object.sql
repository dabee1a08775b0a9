-- Each header becomes one field of the entry in Redis, so it cannot have a structure.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

SELECT outbox_enqueue('headers', 'x', '{"s": "a", "n": -1.50, "t": true, "f": false, "e": ""}', 'all kinds');
SELECT outbox_enqueue('headers', 'x', '{}', 'none');
SELECT outbox_enqueue('headers', 'x', NULL, 'null');
-- jsonb keeps the last of two of the same name.
SELECT outbox_enqueue('headers', 'x', '{"a": [1], "a": 2}', 'twice');
-- Names are case-sensitive, and only the whole name is reserved.
SELECT outbox_enqueue('headers', 'x', '{"ID": 1, "Body": 1, "times": 1, "caus": 1}', 'almost reserved');
SELECT message_id, headers FROM log WHERE dest = 'headers' ORDER BY id;

SELECT outbox_enqueue('headers', 'x', '{"a": 1, "id": "mine"}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"": "no name"}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"time": 1}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"body": 1}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"cause": null}');
\echo :SQLSTATE

SELECT outbox_enqueue('headers', 'x', '{"a": 1, "empty": null}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"a": 1, "nested": {"id": 1}}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '{"list": []}');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '["a", 1]');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', '"a"');
\echo :SQLSTATE
SELECT outbox_enqueue('headers', 'x', 'null');
\echo :SQLSTATE

BEGIN;
SELECT outbox_enqueue('headers', 'x', jsonb_object_agg('h' || n, n), 'a thousand') FROM generate_series(1, 1000) n;
ROLLBACK;
SELECT outbox_enqueue('headers', 'x', jsonb_object_agg('h' || n, n)) FROM generate_series(1, 1001) n;
\echo :SQLSTATE

SELECT count(*) FROM log WHERE dest = 'headers';
