-- Functions are created in the schema of CREATE EXTENSION; DROP EXTENSION leaves nothing behind, and it can be created again.
SET client_min_messages = warning; DROP EXTENSION IF EXISTS outbox CASCADE; DROP ROLE IF EXISTS regress_outbox_app; RESET client_min_messages;
\set SHOW_CONTEXT never

-- The members of the extension by schema, and all that is named like them.
CREATE VIEW pg_temp.traces AS
	SELECT 'schema' AS kind, nspname::text AS name FROM pg_namespace WHERE nspname = 'outbox'
	UNION ALL
	SELECT 'relation', c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = 'outbox' AND c.relkind IN ('r', 'v', 'S')
	UNION ALL
	SELECT 'function', p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = 'outbox' OR p.proname LIKE 'outbox\_%'
	UNION ALL
	SELECT 'type', t.oid::regtype::text FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
	WHERE n.nspname = 'outbox';
CREATE PROCEDURE pg_temp.try_it(prefix text) LANGUAGE plpgsql AS $$
DECLARE
	is_new boolean;
	messages integer;
BEGIN
	EXECUTE format('SELECT %soutbox_begin(''schema-1'')', prefix) INTO is_new;
	IF is_new THEN
		EXECUTE format('SELECT %soutbox_enqueue(''schema'', ''x'')', prefix);
	END IF;
	EXECUTE format('SELECT %soutbox_commit()', prefix) INTO messages;
	RAISE NOTICE 'new: %, messages: %', is_new, messages;
END
$$;

-- without a choice: the first schema of the search path
CREATE EXTENSION outbox;
CALL pg_temp.try_it('');
SELECT DISTINCT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE proname LIKE 'outbox\_%';
CREATE EXTENSION outbox;
\echo :SQLSTATE
DROP EXTENSION outbox;
SELECT * FROM pg_temp.traces;
SELECT outbox_begin('schema-1');
\echo :SQLSTATE

-- Created again it is empty: it does not know what was processed before.
CREATE EXTENSION outbox;
SELECT count(*) FROM outbox.records;
CALL pg_temp.try_it('');
-- dropped and created within one transaction
BEGIN;
DROP EXTENSION outbox;
SELECT * FROM pg_temp.traces;
CREATE EXTENSION outbox;
CALL pg_temp.try_it('');
COMMIT;
SELECT count(*) FROM outbox.records;
-- a drop that is rolled back
BEGIN;
DROP EXTENSION outbox;
ROLLBACK;
CALL pg_temp.try_it('');
SELECT count(*) FROM outbox.records;
-- a create that is rolled back
DROP EXTENSION outbox;
BEGIN;
CREATE EXTENSION outbox;
SELECT outbox_enqueue('schema', 'x') IS NOT NULL AS enqueued;
ROLLBACK;
SELECT * FROM pg_temp.traces;

-- a schema of its own, whose name must be quoted
CREATE SCHEMA "Message Box";
CREATE EXTENSION outbox SCHEMA "Message Box";
SELECT DISTINCT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE proname LIKE 'outbox\_%';
CALL pg_temp.try_it('"Message Box".');
SELECT outbox_begin('schema-1');
\echo :SQLSTATE
SELECT "Message Box".outbox_create_endpoint('e', 'pessimistic');
SELECT "Message Box".outbox_alter_endpoint('e');
SELECT "Message Box".outbox_drop_endpoint('e');
-- a role is given the schema, too; taking one kind of access away leaves the other
CREATE ROLE regress_outbox_app;
SELECT "Message Box".outbox_grant('regress_outbox_app');
SET ROLE regress_outbox_app;
CALL pg_temp.try_it('"Message Box".');
RESET ROLE;
-- The owner of another schema may drop it, even without the right to use it.
CREATE SCHEMA closed AUTHORIZATION regress_outbox_app;
REVOKE USAGE ON SCHEMA closed FROM regress_outbox_app;
SET ROLE regress_outbox_app;
DROP SCHEMA closed CASCADE;
RESET ROLE;
SELECT "Message Box".outbox_grant('regress_outbox_app', 'admin');
SELECT "Message Box".outbox_revoke('regress_outbox_app');
SET ROLE regress_outbox_app;
SELECT "Message Box".outbox_begin('schema-2');
\echo :SQLSTATE
SELECT "Message Box".outbox_create_endpoint('e');
SELECT count(*) FROM outbox.status;
RESET ROLE;
SELECT "Message Box".outbox_revoke('regress_outbox_app', 'admin');
-- a schema that is renamed
ALTER SCHEMA "Message Box" RENAME TO "Post Office";
CALL pg_temp.try_it('"Post Office".');
SELECT "Post Office".outbox_grant('regress_outbox_app', 'admin');
SELECT has_schema_privilege('regress_outbox_app', 'Post Office', 'USAGE');
SET ROLE regress_outbox_app;
SELECT "Post Office".outbox_retry(gen_random_uuid()), "Post Office".outbox_retry('d', gen_random_uuid()), "Post Office".outbox_discard('d', gen_random_uuid());
RESET ROLE;
SELECT "Post Office".outbox_revoke('regress_outbox_app', 'admin');
SELECT has_schema_privilege('regress_outbox_app', 'Post Office', 'USAGE');
ALTER SCHEMA "Post Office" RENAME TO "Message Box";
DROP ROLE regress_outbox_app;
ALTER EXTENSION outbox SET SCHEMA public;
\echo :SQLSTATE
DROP EXTENSION outbox;
SELECT * FROM pg_temp.traces;
DROP SCHEMA "Message Box";

-- the schema outbox itself, for functions and tables alike
CREATE SCHEMA outbox;
CREATE EXTENSION outbox SCHEMA outbox;
CALL pg_temp.try_it('outbox.');
CREATE ROLE regress_outbox_app;
SELECT outbox.outbox_grant('regress_outbox_app');
SET ROLE regress_outbox_app;
CALL pg_temp.try_it('outbox.');
SELECT count(*) FROM outbox.status;
\echo :SQLSTATE
SELECT count(*) FROM outbox.log_0;
\echo :SQLSTATE
SELECT outbox.is_pending('1');
\echo :SQLSTATE
RESET ROLE;
SELECT outbox.outbox_grant('regress_outbox_app', 'monitor');
SELECT outbox.outbox_revoke('regress_outbox_app', 'monitor');
SET ROLE regress_outbox_app;
SELECT outbox.outbox_begin('schema-1');
RESET ROLE;
SELECT outbox.outbox_revoke('regress_outbox_app');
DROP ROLE regress_outbox_app;
DROP EXTENSION outbox;
-- The schema existed before, so it stays.
SELECT * FROM pg_temp.traces;

-- A schema of that name that somebody else owns is not used.
CREATE EXTENSION outbox;
\echo :SQLSTATE
DROP SCHEMA outbox;
CREATE EXTENSION outbox;
DROP EXTENSION outbox;

-- Names may all be quoted, as in a dump.
SET quote_all_identifiers = on;
CREATE SCHEMA outbox;
CREATE EXTENSION outbox SCHEMA outbox;
DROP EXTENSION outbox;
DROP SCHEMA outbox;
RESET quote_all_identifiers;
