-- With keep=false no row stays that was sent, not even if it was changed before the trigger of outbox_forward() fired.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP VIEW sent AS SELECT dest, encode(body, 'escape') AS body FROM outbox_enqueued();

-- By another trigger, more than once.
CREATE TABLE touched (topic text, times integer DEFAULT 0);
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE touched SET times = times + 1; UPDATE touched SET times = times + 1; RETURN NULL; END $$;
CREATE TRIGGER before_it AFTER INSERT ON touched FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER forward AFTER INSERT ON touched FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=times', 'keep=false');
BEGIN;
INSERT INTO touched VALUES ('d'), ('e');
SELECT * FROM sent;
SELECT * FROM touched;
ROLLBACK;
DROP TABLE touched;
DROP FUNCTION touch;

-- By statements of the transaction, where the trigger is deferred: the row is sent as it was inserted.
CREATE TABLE waiting (id integer, topic text) PARTITION BY LIST (id);
CREATE TABLE waiting_1 PARTITION OF waiting FOR VALUES IN (1, 2, 3, 4);
CREATE TABLE waiting_5 (topic text, id integer);
ALTER TABLE waiting ATTACH PARTITION waiting_5 FOR VALUES IN (5);
CREATE CONSTRAINT TRIGGER forward AFTER INSERT ON waiting DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	EXECUTE FUNCTION outbox_forward('dest=topic', 'body=id', 'keep=false');
BEGIN;
INSERT INTO waiting SELECT n, 'd' FROM generate_series(1, 5) n;
SAVEPOINT taken_back;
UPDATE waiting SET topic = 'nothing';
ROLLBACK TO taken_back;
UPDATE waiting SET topic = 'changed' WHERE id < 3;
UPDATE waiting SET topic = 'again' WHERE id = 1;
DELETE FROM waiting WHERE id = 3;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT * FROM sent;
SELECT * FROM waiting;
ROLLBACK;

-- One that goes to another partition is sent from there as well.
BEGIN;
INSERT INTO waiting VALUES (4, 'd');
UPDATE waiting SET id = 5;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT * FROM sent;
SELECT * FROM waiting;
ROLLBACK;
DROP TABLE waiting;
