-- COMMIT with an open record is an error, for a forgotten outbox_commit() would lose the message.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TABLE users (name text);

-- a forgotten commit
BEGIN;
SELECT outbox_begin('open-1');
INSERT INTO users VALUES ('anna');
SELECT outbox_enqueue('open', 'x', NULL, 'open-1-out');
COMMIT;
\echo :SQLSTATE
-- begin under autocommit
SELECT outbox_begin('open-1');
\echo :SQLSTATE
SELECT outbox_begin('open-1', concurrency => 'pessimistic');
\echo :SQLSTATE
-- the same in every other kind of transaction
DO $$ BEGIN PERFORM outbox_begin('open-1'); END $$;
\echo :SQLSTATE
CREATE PROCEDURE forgets() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_begin('open-1');
	COMMIT;
END
$$;
CALL forgets();
\echo :SQLSTATE
BEGIN;
SELECT outbox_begin('open-1');
COMMIT AND CHAIN;
\echo :SQLSTATE
ROLLBACK;
SELECT outbox_begin('open-1') \; SELECT 'in the same implicit transaction';
\echo :SQLSTATE

-- A framework that ignores an exception and commits.
BEGIN;
SELECT outbox_begin('open-1');
INSERT INTO users VALUES ('bert');
SELECT 1 / 0;
COMMIT;

-- Nothing of all this was committed, and the message can still be processed.
SELECT count(*) FROM users;
SELECT count(*) FROM outbox.records WHERE msgid = 'open-1';
SELECT count(*) FROM outbox.pending WHERE dest = 'open';
BEGIN;
SELECT outbox_begin('open-1');
SELECT outbox_commit();
COMMIT;

-- Allowed under autocommit: all three calls in one statement.
SELECT outbox_begin('open-2') AS is_new, outbox_enqueue('open', 'x', NULL, 'open-2-out') AS id, outbox_commit() AS messages;
SELECT outbox_begin('open-3') \; SELECT outbox_commit();
SELECT msgid FROM outbox.records WHERE msgid LIKE 'open-%' ORDER BY 1;

-- Deferred constraints are still checked.
CREATE TABLE accounts (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT outbox_begin('open-4');
INSERT INTO accounts VALUES (1), (1);
SELECT outbox_commit();
COMMIT;
\echo :SQLSTATE
SELECT count(*) FROM outbox.records WHERE msgid = 'open-4';

DROP TABLE users, accounts;
DROP PROCEDURE forgets;
