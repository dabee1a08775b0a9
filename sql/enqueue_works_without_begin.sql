-- A transaction that only sends needs no record.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

SELECT outbox_enqueue('plain', 'autocommit', NULL, 'plain-1');
BEGIN;
SELECT outbox_enqueue('plain', 'block', NULL, 'plain-2');
SELECT outbox_enqueue('plain', 'block', NULL, 'plain-3');
COMMIT;
BEGIN;
SELECT outbox_enqueue('plain', 'rolled back', NULL, 'plain-4');
ROLLBACK;

-- from a function, a DO block, a trigger, a deferred trigger, a CTE
CREATE FUNCTION notify_created() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_enqueue('plain', to_jsonb(NEW), message_id => TG_NAME || NEW.id);
	RETURN NULL;
END
$$;
CREATE TABLE orders (id integer);
CREATE TRIGGER at_once AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION notify_created();
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION notify_created();
INSERT INTO orders VALUES (1), (2);
BEGIN;
INSERT INTO orders VALUES (3);
SELECT outbox_enqueue('plain', 'between', NULL, 'between');
COMMIT;
DO $$ BEGIN PERFORM outbox_enqueue('plain', 'DO', message_id => 'plain-5'); END $$;
WITH sent AS (INSERT INTO orders VALUES (4) RETURNING outbox_enqueue('plain', 'RETURNING', NULL, 'plain-6')) SELECT FROM sent;
-- A role that may not enqueue may not insert either.
BEGIN;
INSERT INTO orders VALUES (5);
SAVEPOINT before;
INSERT INTO orders SELECT 6 WHERE outbox_enqueue('', 'refused') IS NOT NULL;
ROLLBACK;

SELECT message_id, cause, key, encode(body, 'escape') AS body FROM log WHERE dest = 'plain' ORDER BY id;

-- A deferred trigger runs after outbox_commit(): its message has no cause. One that opens a record must close it.
BEGIN;
SELECT outbox_begin('plain-7');
INSERT INTO orders VALUES (7);
SELECT outbox_commit();
COMMIT;
SELECT message_id, cause FROM log WHERE dest = 'plain' AND message_id LIKE '%7' ORDER BY id;
CREATE FUNCTION open_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_begin('plain-8');
	RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER opens AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION open_message();
INSERT INTO orders VALUES (8);
\echo :SQLSTATE
SELECT count(*) FROM orders WHERE id = 8;
SELECT count(*) FROM log WHERE dest = 'plain' AND message_id LIKE '%8';

DROP TABLE orders;
DROP FUNCTION notify_created, open_message;
