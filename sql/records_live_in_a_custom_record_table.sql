-- An endpoint keeps its records in a custom record table.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE SCHEMA own;
CREATE ROLE regress_outbox_owner;
CREATE ROLE regress_outbox_worker;
GRANT USAGE ON SCHEMA own TO regress_outbox_owner;
SELECT outbox_grant('regress_outbox_worker');
CREATE TABLE own.inbox (n serial, ref varchar(40) PRIMARY KEY, done boolean NOT NULL, done_at timestamptz,
	by_whom text DEFAULT current_user, note text);
CREATE INDEX ON own.inbox (done, done_at);
ALTER TABLE own.inbox OWNER TO regress_outbox_owner;
SELECT outbox_create_endpoint('own', 'optimistic', record_table => 'own.inbox',
	record_columns => '{"message_id": "ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_create_endpoint('own pessimistic', 'pessimistic', record_table => 'own.inbox');
\echo :SQLSTATE

-- the caller has no rights on the table; the row is written with those of its owner
SET ROLE regress_outbox_worker;
SELECT count(*) FROM own.inbox;
\echo :SQLSTATE
BEGIN;
SELECT outbox_begin('own-1', 'own');
SELECT outbox_commit();
COMMIT;
SELECT outbox_begin('own-1', 'own');
BEGIN;
SELECT outbox_begin('own-2', 'own', 'pessimistic');
SELECT outbox_commit();
SELECT outbox_begin('own-2', 'own', 'pessimistic');
SELECT outbox_begin('own-1', 'own', 'pessimistic');
COMMIT;
-- savepoints
BEGIN;
SAVEPOINT a;
SELECT outbox_begin('own-3', 'own'), outbox_commit();
ROLLBACK TO a;
SELECT outbox_begin('own-3', 'own', 'pessimistic'), outbox_commit();
SAVEPOINT b;
SELECT outbox_begin('own-4', 'own', 'pessimistic');
ROLLBACK TO b;
SELECT outbox_begin('own-4', 'own');
ROLLBACK TO a;
COMMIT;
RESET ROLE;
SELECT ref, by_whom, done AND done_at IS NULL AS wrong FROM own.inbox ORDER BY ref;
-- nothing of it is in the tables of the extension
SELECT endpoint, msgid, tx, segment FROM outbox.records WHERE endpoint = 'own' ORDER BY msgid;

-- rows that the user inserts are records
INSERT INTO own.inbox (ref, done) VALUES ('own-5', true), ('own-6', false);
SELECT outbox_begin('own-5', 'own'), outbox_begin('own-6', 'own');
BEGIN;
SELECT outbox_begin('own-7', 'own');
INSERT INTO own.inbox (ref, done) VALUES ('own-7', true);
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
BEGIN;
DELETE FROM own.inbox WHERE ref = 'own-5';
SELECT outbox_begin('own-5', 'own', 'pessimistic'), outbox_commit();
COMMIT;
SELECT outbox_begin('own-5', 'own');

-- ids as the column has them
SELECT outbox_begin(repeat('x', 41), 'own', 'pessimistic');
\echo :SQLSTATE
SELECT outbox_begin('own-8' || repeat(' ', 40), 'own', 'pessimistic');
\echo :SQLSTATE
SELECT outbox_begin('OWN-1', 'own', 'pessimistic');
\echo :SQLSTATE

-- triggers and defaults run with the rights of the owner and no more
CREATE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.note := current_user || ' ' || current_setting('search_path');
	RETURN NEW;
END
$$;
CREATE TRIGGER spy BEFORE INSERT ON own.inbox FOR EACH ROW EXECUTE FUNCTION own.spy();
BEGIN;
SELECT outbox_begin('own-9', 'own', 'pessimistic'), outbox_commit(), current_user <> 'regress_outbox_owner' AS myself_again;
SELECT note FROM own.inbox WHERE ref = 'own-9';
ROLLBACK;
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE trap (); RETURN NEW; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET ROLE regress_outbox_worker; RETURN NEW; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.ref := upper(NEW.ref); RETURN NEW; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.outbox_begin('inner', 'own', 'pessimistic'); RETURN NEW; END $$;
GRANT EXECUTE ON FUNCTION outbox_begin(text, text, text) TO regress_outbox_owner;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
REVOKE EXECUTE ON FUNCTION outbox_begin(text, text, text) FROM regress_outbox_owner;
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE unique_violation; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
-- a conflict with an index of the same name elsewhere is not mistaken for a duplicate, nor is an insert of the owner in the same transaction for another one's
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.inbox (ref text PRIMARY KEY);
GRANT ALL ON SCHEMA elsewhere TO regress_outbox_owner;
GRANT ALL ON elsewhere.inbox TO regress_outbox_owner;
INSERT INTO elsewhere.inbox VALUES ('x');
SET statement_timeout = '60s';
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO elsewhere.inbox VALUES ('x'); RETURN NEW; END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		INSERT INTO own.inbox (ref, done) VALUES (NEW.ref, false);
	END IF;
	RETURN NEW;
END $$;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
RESET statement_timeout;
-- a cursor that a trigger leaves open is closed, and others are not
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'left_open';
BEGIN
	OPEN c FOR SELECT current_user;
	RETURN NEW;
END $$;
BEGIN;
DECLARE mine CURSOR FOR SELECT 1;
SELECT outbox_begin('own-9', 'own', 'pessimistic');
SELECT name FROM pg_cursors;
ROLLBACK;
DROP TRIGGER spy ON own.inbox;
DROP TABLE elsewhere.inbox;
DROP SCHEMA elsewhere;
CREATE OR REPLACE FUNCTION own.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
-- one that was made deferred by the caller would run with the caller's rights
CREATE CONSTRAINT TRIGGER spy AFTER INSERT ON own.inbox DEFERRABLE FOR EACH ROW EXECUTE FUNCTION own.spy();
SELECT outbox_begin('own-9', 'own', 'pessimistic');
\echo :SQLSTATE
DROP TRIGGER spy ON own.inbox;

-- the table changes while it is used
BEGIN;
SELECT outbox_begin('own-9', 'own');
ALTER TABLE own.inbox RENAME COLUMN done TO finished;
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
ALTER TABLE own.inbox DROP CONSTRAINT inbox_pkey;
SELECT outbox_begin('own-1', 'own');
\echo :SQLSTATE
SELECT outbox_wait('own-1', 'own');
\echo :SQLSTATE
SELECT endpoint, msgid FROM outbox.records WHERE endpoint = 'own';
ALTER TABLE own.inbox ADD UNIQUE (ref);
SELECT outbox_begin('own-1', 'own');
ALTER TABLE own.inbox RENAME TO letters;
ALTER TABLE own.letters RENAME ref TO "Ref";
SELECT outbox_alter_endpoint('own', record_columns => '{"message_id": "Ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_begin('own-1', 'own'), outbox_begin('own-2', 'own');
BEGIN;
SELECT outbox_begin('own-9', 'own'), outbox_commit();
ROLLBACK;

-- what an endpoint had in the tables of the extension before still counts, and so does what is in both
SELECT outbox_create_endpoint('moves');
BEGIN;
SELECT outbox_begin('moves-1', 'moves'), outbox_commit();
COMMIT;
CREATE TABLE own.moved (LIKE own.letters INCLUDING ALL);
CREATE TABLE own.ids (message_id uuid UNIQUE, dispatched boolean, dispatched_at timestamp);
CREATE INDEX ON own.ids (dispatched_at);
BEGIN;
SELECT outbox_begin('moves-2', 'moves');
SELECT outbox_alter_endpoint('moves', record_table => 'own.moved', record_columns => '{"message_id": "Ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;
SELECT outbox_alter_endpoint('moves', record_table => 'own.moved', record_columns => '{"message_id": "Ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_begin('moves-1', 'moves'), outbox_begin('moves-1', 'moves', 'pessimistic');
-- A list of endpoints reads no row that was freed, whatever PostgreSQL forgets meanwhile (all, always, in a build with assertions).
BEGIN;
SELECT count(set_config(name, least(max_val::integer, 1)::text, true)) FROM pg_settings WHERE name = 'debug_discard_caches';
SELECT name FROM outbox.endpoints WHERE name IN ('own', 'moves') ORDER BY name;
ROLLBACK;
SELECT name, concurrency, retention, record_table, records, duplicates FROM outbox.endpoints WHERE name IN ('own', 'moves') ORDER BY name;

-- a column of type uuid
SELECT outbox_alter_endpoint('moves', record_table => 'own.ids', record_columns => '{}');
BEGIN;
SELECT outbox_begin('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::text, 'moves'), outbox_commit();
SELECT outbox_begin('{a0eebc999c0b4ef8bb6d6bb9bd380a11}'::text, 'moves');
SELECT outbox_begin('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, 'moves', 'pessimistic');
SELECT outbox_begin('moves-1', 'moves');
\echo :SQLSTATE
ROLLBACK;

-- the table is dropped
DROP TABLE own.ids;
SELECT outbox_begin('moves-1', 'moves');
\echo :SQLSTATE
SELECT name, record_table IS NOT NULL AS has_table, records FROM outbox.endpoints WHERE name = 'moves';
SELECT outbox_alter_endpoint('moves', reset => '{record_table}');
SELECT outbox_begin('moves-1', 'moves');

-- passwords of stores are not shown
SELECT outbox_alter_endpoint('moves', dedup_store => 'redis://user:secret@127.0.0.1:1/0');
SELECT dedup_store FROM outbox.endpoints WHERE name = 'moves';
SELECT outbox_alter_endpoint('moves', dedup_store => 'postgresql://user:secret@h/db?sslmode=require&password=secret');
SELECT dedup_store FROM outbox.endpoints WHERE name = 'moves';
SELECT outbox_alter_endpoint('moves', dedup_store => 'postgresql://h/db');
SELECT dedup_store FROM outbox.endpoints WHERE name = 'moves';

SELECT outbox_drop_endpoint('own', force => true), outbox_drop_endpoint('moves', force => true);
SET client_min_messages = warning;
SELECT outbox_revoke('regress_outbox_worker');
DROP SCHEMA own CASCADE;
DROP ROLE regress_outbox_owner, regress_outbox_worker;
