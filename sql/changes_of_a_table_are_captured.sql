-- Changes of a captured table become messages of the same transaction.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
SET client_min_messages = warning; DROP ROLE IF EXISTS regress_outbox_owner, regress_outbox_writer; RESET client_min_messages;
\set SHOW_CONTEXT never
SET timezone = 'UTC';
CREATE TEMP VIEW sent AS SELECT dest, cause, convert_from(body, 'UTF8') AS body FROM outbox_enqueued();

CREATE TABLE orders (id integer PRIMARY KEY, state text, amount numeric(8, 2));
SELECT outbox_capture('orders', 'order-changes');
BEGIN;
INSERT INTO orders VALUES (1, 'new', 9.50), (2, E'a "quoted"\nstate \\', NULL);
UPDATE orders SET amount = amount + 1;
UPDATE orders SET id = 3 WHERE id = 2;
DELETE FROM orders WHERE id = 1;
SELECT outbox_begin('capture-1');
TRUNCATE orders;
SELECT outbox_commit();
INSERT INTO orders VALUES (4, 'upserted', 1) ON CONFLICT (id) DO UPDATE SET state = 'not inserted';
INSERT INTO orders VALUES (4, 'upserted', 1) ON CONFLICT (id) DO UPDATE SET state = 'updated';
TABLE sent;
-- An UPDATE that changes nothing is no change.
SAVEPOINT s;
UPDATE orders SET state = state;
SELECT count(*) FROM sent;
INSERT INTO orders VALUES (5, 'rolled back', 1);
ROLLBACK TO s;
SELECT count(*) FROM sent;
ROLLBACK;

-- Headers of the transaction are also those of its changes.
BEGIN;
SET LOCAL outbox.headers = '{"trace": "4711"}';
INSERT INTO orders VALUES (7, 'new', 1);
SELECT headers FROM outbox_enqueued();
ROLLBACK;

-- The bodies are what to_json() makes of the rows.
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a integer, b text);
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TABLE types (i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, n numeric, b boolean, t text, v varchar(9), c char(4),
	u uuid, j json, jb jsonb, d date, ts timestamp, tz timestamptz, by bytea, m mood, p pair, a integer[], ta text[][], dom positive, iv interval,
	ip inet, "quoted ""name""" integer, gen integer GENERATED ALWAYS AS (i4 * 2) STORED, r int4range, o oid, nm name);
SELECT outbox_capture('types', 'types');
BEGIN;
SET LOCAL datestyle = 'SQL, DMY';
INSERT INTO types VALUES (-1, 21, -9223372036854775808, 1.5, 0.1, 12.340, true, E'\t\u00e9', 'v', 'c', '6ba7b810-9dad-11d1-80b4-00c04fd430c8',
	'{"a" : 1}', '{"b": [1, null]}', '2026-11-22', '2026-11-22 11:38:00.5', '2026-11-22 11:38:00+02', '\x00ff', 'happy', (1, 'x'), '{1,NULL,3}',
	'{{a,b},{c,d}}', 7, '1 day 2:00', '10.0.0.1', 26, DEFAULT, '[1,5)', 42, 'name');
INSERT INTO types (i2, f4, f8, n, d, tz) VALUES (0, 'NaN', '-Infinity', 'NaN', 'infinity', '-infinity');
SELECT (body::json -> 'after')::text = row_to_json(types)::text AS same FROM sent JOIN types ON i2 = (body::json -> 'after' ->> 'i2')::integer;
ALTER TABLE types DROP COLUMN i4 CASCADE;
ALTER TABLE types ADD COLUMN later integer DEFAULT 1;
UPDATE types SET later = 2 WHERE i2 = -1;
SELECT (body::json -> 'after')::text = (SELECT row_to_json(types)::text FROM types WHERE i2 = -1) AS same, body::json -> 'before' ->> 'later' AS later FROM sent OFFSET 2;
ROLLBACK;

-- Large values that an UPDATE leaves alone are there, too, before and after.
CREATE TABLE large (id integer PRIMARY KEY, n integer, big text);
ALTER TABLE large ALTER big SET STORAGE EXTERNAL;
INSERT INTO large VALUES (1, 1, repeat('x', 100000));
SELECT outbox_capture('large', 'large');
BEGIN;
UPDATE large SET n = 2;
UPDATE large SET n = 2, big = big;
DELETE FROM large;
SELECT length(body), body::json ->> 'op' AS op, length(body::json -> 'before' ->> 'big') AS before, length(body::json -> 'after' ->> 'big') AS after FROM sent;
ROLLBACK;

-- An UPDATE may leave a column as it was and yet store it in another form.
CREATE TABLE grown (id integer PRIMARY KEY DEFERRABLE, n integer);
INSERT INTO grown VALUES (1, 1), (2, 2);
ALTER TABLE grown ADD COLUMN added text DEFAULT 'default';
ALTER TABLE grown ADD COLUMN squeezed text;
UPDATE grown SET squeezed = repeat('y', 5000);
ALTER TABLE grown ALTER squeezed SET STORAGE EXTERNAL;
SELECT outbox_capture('grown', 'grown');
BEGIN;
UPDATE grown SET n = n, squeezed = repeat('y', 5000);
SELECT count(*) FROM sent;
UPDATE grown SET added = 'changed' WHERE id = 2;
-- A primary key may be deferrable.
SELECT body::json -> 'key' AS key, body::json -> 'after' ->> 'added' AS added FROM sent;
ROLLBACK;
DROP TABLE grown;

-- The key of a message is the value as it is when it is cast to text; the body has it as row_to_json() prints it.
CREATE TABLE padded (code char(8) PRIMARY KEY);
SELECT outbox_capture('padded', 'padded');
BEGIN;
INSERT INTO padded VALUES ('abc');
SELECT key, convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;
DROP TABLE padded;
CREATE TYPE quoted AS ENUM ('a "\b"');
CREATE TABLE quoting (code quoted PRIMARY KEY);
SELECT outbox_capture('quoting', 'quoting');
BEGIN;
INSERT INTO quoting VALUES ('a "\b"');
SELECT key, convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;
DROP TABLE quoting;
DROP TYPE quoted;

-- Sessions with other settings print the same key.
CREATE TABLE printed (at timestamptz, during interval, bytes bytea, number float8, day date, PRIMARY KEY (at, during, bytes, number, day));
SELECT outbox_capture('printed', 'printed', events => '{insert,update}', columns => '{day}');
CREATE TABLE moments (at timestamptz PRIMARY KEY);
SELECT outbox_capture('moments', 'moments');
BEGIN;
INSERT INTO printed VALUES ('2026-11-23 04:00+00', '1 day 2:03', '\x00ff', 0.1::float8 + 0.2, '2026-11-23');
INSERT INTO moments VALUES ('2026-11-23 04:00+00');
SET LOCAL timezone = 'Asia/Kolkata';
SET LOCAL datestyle = 'SQL, DMY';
SET LOCAL intervalstyle = 'sql_standard';
SET LOCAL bytea_output = 'escape';
SET LOCAL extra_float_digits = 0;
UPDATE printed SET day = '2026-11-24';
DELETE FROM moments;
SELECT key FROM outbox_enqueued();
SHOW timezone;
ROLLBACK;
DROP TABLE printed, moments;

-- Some columns, some events, a condition, another key, without the row as it was.
SELECT outbox_uncapture('orders');
SELECT outbox_uncapture('orders');
SELECT outbox_capture('orders', 'states', events => '{update}', columns => '{id,state}', condition => $$OLD.state IS DISTINCT FROM NEW.state AND NEW.state <> 'secret'$$);
SELECT outbox_capture('orders', 'gone', events => '{delete}', key => '{state,id}', before => false);
BEGIN;
INSERT INTO orders VALUES (1, 'new', 1), (2, 'new', 2);
UPDATE orders SET amount = 7;
UPDATE orders SET state = 'paid' WHERE id = 1;
UPDATE orders SET state = 'secret' WHERE id = 2;
DELETE FROM orders;
TRUNCATE orders;
TABLE sent;
ROLLBACK;
-- Another call replaces the triggers of the same events.
SELECT outbox_capture('orders', 'other', events => '{update}');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'orders'::regclass ORDER BY 1;
-- A trigger of one's own has a name of its own, too.
CREATE TRIGGER paid AFTER UPDATE ON orders FOR EACH ROW WHEN (NEW.state = 'paid') EXECUTE FUNCTION outbox_capture('paid-orders', '{"columns": ["id"]}');
INSERT INTO orders VALUES (1, 'new', 1);
BEGIN;
UPDATE orders SET id = 2, state = 'paid';
TABLE sent;
ROLLBACK;
SELECT outbox_uncapture('orders');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'orders'::regclass;

-- A table without a primary key has messages without a key; names are those of now.
CREATE SCHEMA "My Schema";
CREATE TABLE "My Schema"."My ""Table""" ("Some Column" integer);
SELECT outbox_capture('"My Schema"."My ""Table"""', E'it''s a \\ destination');
BEGIN;
INSERT INTO "My Schema"."My ""Table""" VALUES (1);
ALTER TABLE "My Schema"."My ""Table""" RENAME TO t;
ALTER SCHEMA "My Schema" RENAME TO s;
ALTER TABLE s.t RENAME "Some Column" TO c;
INSERT INTO s.t VALUES (2);
TABLE sent;
COMMIT;

-- Partitions have the name of the table that was captured, and its key, whatever the order of
-- their columns; a row that moves is deleted and inserted.
CREATE TABLE parts (id integer, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE parts_2 (dropped integer, day date NOT NULL, id integer NOT NULL) PARTITION BY RANGE (id);
ALTER TABLE parts_2 DROP COLUMN dropped;
CREATE TABLE parts_2_1 PARTITION OF parts_2 FOR VALUES FROM (1) TO (100);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
SELECT outbox_capture('parts', 'parts');
SELECT outbox_capture('parts', 'parts');
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
BEGIN;
INSERT INTO parts VALUES (1, '2026-01-05'), (2, '2026-02-05'), (3, '2026-03-05');
UPDATE parts SET day = '2026-02-06' WHERE id = 1;
INSERT INTO parts_2_1 VALUES ('2026-02-07', 4);
TRUNCATE parts;
SELECT body FROM sent;
ALTER TABLE parts RENAME TO renamed;
INSERT INTO renamed VALUES (9, '2026-01-05');
SELECT body FROM sent OFFSET 7;
ROLLBACK;

-- What is refused.
\set VERBOSITY default
SELECT outbox_capture(NULL, 'd');
\echo :SQLSTATE
SELECT outbox_capture('orders', NULL);
\echo :SQLSTATE
SELECT outbox_capture('orders', 'outbox:x');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', events => '{insert,select}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', events => NULL);
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', events => '{}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', columns => '{id,nonsense}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', key => '{ctid}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', columns => '{id,NULL}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', columns => '{}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', columns => '{id,amount,id}');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', condition => 'OLD.id = 1');
\echo :SQLSTATE
SELECT outbox_capture('orders', 'd', condition => 'true) EXECUTE FUNCTION outbox_capture(''other''); --');
\echo :SQLSTATE
SELECT outbox_capture(1::oid::regclass, 'd');
\echo :SQLSTATE
SELECT outbox_capture('outbox.deferred', 'd');
\echo :SQLSTATE
SELECT outbox_capture('outbox.status', 'd');
\echo :SQLSTATE
SELECT outbox_capture('parts_1', 'd');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture();
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d', '{"column": ["id"]}');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d', '{"columns": []}');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d', '{"key": ["nonsense"]}');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d', '[]');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d', '{}', 'more');
\echo :SQLSTATE
CREATE TRIGGER wrong BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('d');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON orders EXECUTE FUNCTION outbox_capture('d');
\echo :SQLSTATE
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'orders'::regclass;
-- A column that is gone is an error of what changes the table.
SELECT outbox_capture('orders', 'd', columns => '{id,amount}');
ALTER TABLE orders DROP COLUMN amount;
INSERT INTO orders VALUES (10, 'x');
\echo :SQLSTATE

-- A trigger that changes a row again, whatever its name, has that change sent after the first one.
CREATE TABLE totals (id integer PRIMARY KEY, total integer DEFAULT 0);
CREATE FUNCTION add_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE totals SET total = total + 1 WHERE id = NEW.id AND total < 2;
	RETURN NULL;
END
$$;
CREATE TRIGGER "A" AFTER INSERT OR UPDATE ON totals FOR EACH ROW EXECUTE FUNCTION add_up();
SELECT outbox_capture('totals', 'totals', before => false);
BEGIN;
INSERT INTO totals VALUES (1), (2);
SELECT convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;

-- A trigger that replaces another fires when that did, also for what a subscription applies.
ALTER TABLE totals ENABLE ALWAYS TRIGGER "0_outbox_capture_insert", ENABLE REPLICA TRIGGER "0_outbox_capture_update", DISABLE TRIGGER "0_outbox_capture_delete";
SELECT outbox_capture('totals', 'again', before => false);
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'totals'::regclass ORDER BY 1;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO totals VALUES (3);
SELECT dest, convert_from(body, 'UTF8') AS body FROM outbox_enqueued();
ROLLBACK;

-- So it does in each partition, as that may differ from its table.
ALTER TABLE parts ENABLE ALWAYS TRIGGER "0_outbox_capture_insert";
ALTER TABLE parts_1 ENABLE REPLICA TRIGGER "0_outbox_capture_insert";
ALTER TABLE parts_2 ENABLE TRIGGER "0_outbox_capture_insert";
ALTER TABLE parts_2_1 ENABLE ALWAYS TRIGGER "0_outbox_capture_insert";
SELECT outbox_capture('parts', 'parts');
SELECT tgrelid::regclass AS partition, tgenabled FROM pg_trigger WHERE tgname = '0_outbox_capture_insert' AND tgrelid::regclass::text LIKE 'parts%' ORDER BY tgrelid::regclass::text COLLATE "C";

-- A search_path that was set for the function, as checkers of schemas propose, changes nothing.
ALTER FUNCTION outbox_capture() SET search_path = '';
SELECT outbox_capture('totals', 'd', columns => '{nonsense}');
\echo :SQLSTATE
SELECT outbox_uncapture('totals');
SELECT tgname FROM pg_trigger WHERE tgrelid = 'totals'::regclass;
ALTER FUNCTION outbox_capture() RESET search_path;

-- Who owns a table and has the rights of an application may capture it; who changes it needs none.
CREATE ROLE regress_outbox_owner;
CREATE ROLE regress_outbox_writer;
GRANT CREATE, USAGE ON SCHEMA s TO regress_outbox_owner;
GRANT USAGE ON SCHEMA s TO regress_outbox_writer;
SELECT outbox_grant('regress_outbox_owner');
SET ROLE regress_outbox_owner;
CREATE TABLE s.owned (id integer PRIMARY KEY);
GRANT INSERT ON s.owned TO regress_outbox_writer;
SELECT outbox_capture('s.owned', 'owned');
SELECT outbox_capture('orders', 'stolen');
\echo :SQLSTATE
SELECT outbox_uncapture('orders');
\echo :SQLSTATE
RESET ROLE;
BEGIN;
SET LOCAL ROLE regress_outbox_writer;
INSERT INTO s.owned VALUES (1);
RESET ROLE;
TABLE sent;
SET LOCAL session_replication_role = replica;
INSERT INTO s.owned VALUES (2);
SELECT count(*) FROM sent;
ROLLBACK;
SET ROLE regress_outbox_writer;
SELECT outbox_capture('s.owned', 'd');
\echo :SQLSTATE
RESET ROLE;

SET client_min_messages = warning;
DROP TABLE orders, types, large, parts, totals, s.t, s.owned;
DROP FUNCTION add_up;
DROP TYPE mood, pair;
DROP DOMAIN positive;
DROP SCHEMA s;
SELECT outbox_revoke('regress_outbox_owner');
DROP ROLE regress_outbox_owner, regress_outbox_writer;
