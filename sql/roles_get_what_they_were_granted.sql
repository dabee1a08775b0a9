-- No role has a privilege before outbox_grant() gives it, and none of them gives access to a table.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- left behind by a run that was interrupted
SET client_min_messages = warning; DROP ROLE IF EXISTS regress_outbox_app, regress_outbox_monitor, regress_outbox_admin; RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE ROLE regress_outbox_app;
CREATE ROLE regress_outbox_monitor;
CREATE ROLE regress_outbox_admin;

-- What a role can do with the tables and sequences of the extension, found by trying.
CREATE FUNCTION pg_temp.tables_within_reach() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	attempt text;
BEGIN
	FOR attempt IN
		SELECT format(template, c.relname, a.attname)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1,
			unnest(CASE c.relkind
				WHEN 'r' THEN ARRAY['SELECT FROM outbox.%I LIMIT 1', 'INSERT INTO outbox.%I DEFAULT VALUES', 'UPDATE outbox.%I SET %I = DEFAULT',
					'DELETE FROM outbox.%I', 'TRUNCATE outbox.%I', 'LOCK outbox.%I',
					'CREATE TRIGGER t BEFORE INSERT ON outbox.%I FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()']
				WHEN 'S' THEN ARRAY['SELECT FROM outbox.%I', 'SELECT nextval(''outbox.%I'')', 'SELECT setval(''outbox.%I'', 1)']
			END) template
		WHERE n.nspname = 'outbox' AND c.relkind IN ('r', 'S') ORDER BY 1
	LOOP
		BEGIN
			EXECUTE attempt;
			RETURN NEXT attempt;
		EXCEPTION
			WHEN insufficient_privilege THEN NULL;
			WHEN OTHERS THEN RETURN NEXT attempt || ': ' || SQLERRM;
		END;
	END LOOP;
END
$$;
CREATE FUNCTION pg_temp.functions_within_reach(role text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT p.oid::regprocedure::text
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'outbox'
	WHERE has_function_privilege(role, p.oid, 'EXECUTE')
	ORDER BY p.oid::regprocedure::text COLLATE "C"
$$;
GRANT EXECUTE ON FUNCTION pg_temp.tables_within_reach TO PUBLIC;
DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO PUBLIC', (SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema())); END $$;

-- This does find what can be done.
BEGIN;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_app;
GRANT SELECT, UPDATE ON outbox.ring TO regress_outbox_app;
SET LOCAL ROLE regress_outbox_app;
SELECT * FROM pg_temp.tables_within_reach();
ROLLBACK;

-- before
SELECT * FROM pg_temp.functions_within_reach('regress_outbox_app');
SET ROLE regress_outbox_app;
SELECT outbox_begin('grant-1');
\echo :SQLSTATE
SELECT outbox_enqueue('grant', 'x');
\echo :SQLSTATE
SELECT outbox_commit();
\echo :SQLSTATE
SELECT outbox_wait('grant-1');
\echo :SQLSTATE
SELECT * FROM outbox.status;
\echo :SQLSTATE
SELECT outbox_create_endpoint('mine');
\echo :SQLSTATE
SELECT outbox_cleanup();
\echo :SQLSTATE
SELECT outbox_grant('regress_outbox_app');
\echo :SQLSTATE
SELECT * FROM pg_temp.tables_within_reach();
RESET ROLE;

-- application
SELECT outbox_grant('regress_outbox_app');
SELECT * FROM pg_temp.functions_within_reach('regress_outbox_app');
SET ROLE regress_outbox_app;
BEGIN;
SELECT outbox_begin('grant-1');
SELECT outbox_enqueue('grant', 'x', '{"h": 1}', 'grant-1-out');
SELECT outbox_commit();
COMMIT;
SELECT outbox_begin('grant-1');
BEGIN;
SELECT outbox_begin('grant-2', concurrency => 'pessimistic');
SELECT outbox_commit();
COMMIT;
SELECT outbox_wait('grant-2');
SELECT outbox_wait('grant-nowhere');
SELECT * FROM pg_temp.tables_within_reach();
SELECT * FROM outbox.status;
\echo :SQLSTATE
SELECT * FROM outbox.read_records();
\echo :SQLSTATE
SELECT outbox_create_endpoint('mine');
\echo :SQLSTATE
SELECT outbox_pause();
\echo :SQLSTATE
SELECT outbox_replay('infinity');
\echo :SQLSTATE
SELECT outbox_grant('regress_outbox_app', 'admin');
\echo :SQLSTATE
RESET ROLE;

-- monitor
SELECT outbox_grant('regress_outbox_monitor', 'monitor');
SELECT * FROM pg_temp.functions_within_reach('regress_outbox_monitor');
SET ROLE regress_outbox_monitor;
SELECT count(*) FROM outbox.status;
SELECT count(*) FROM outbox.pending WHERE dest = 'nowhere';
-- bodies are for administrators
SELECT count(*) FROM outbox.dead_letters;
\echo :SQLSTATE
SELECT count(*) FROM outbox.destinations WHERE dest = 'nowhere';
SELECT endpoint, msgid FROM outbox.records WHERE msgid LIKE 'grant-%' ORDER BY 2;
SELECT name FROM outbox.endpoints WHERE name = 'default';
SELECT * FROM pg_temp.tables_within_reach();
SELECT outbox_begin('grant-3');
\echo :SQLSTATE
SELECT outbox.is_pending('1');
\echo :SQLSTATE
CREATE TEMP TABLE forged (key uuid, tx xid8, endpoint text, msgid text);
CREATE TRIGGER forge BEFORE INSERT ON forged FOR EACH ROW EXECUTE FUNCTION outbox.redirect_restored();
\echo :SQLSTATE
DROP TABLE forged;
SELECT outbox.set_access('GRANT %s ON %s TO %s', 'regress_outbox_monitor', 'admin');
\echo :SQLSTATE
RESET ROLE;

-- admin: all of monitor, and what changes things
SELECT outbox_grant(role => 'regress_outbox_admin', access => 'admin');
SELECT * FROM pg_temp.functions_within_reach('regress_outbox_admin');
SET ROLE regress_outbox_admin;
SELECT outbox_create_endpoint('mine', 'pessimistic');
SELECT outbox_create_endpoint('mine');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('mine', retention => '1 day');
SELECT outbox_drop_endpoint('mine');
SELECT outbox_cleanup() >= 0 AS cleaned;
SELECT outbox_set_destination('mine', maxlen => 10), outbox_pause('mine'), outbox_resume('mine');
SELECT count(*) FROM outbox.dead_letters;
SELECT outbox_retry('mine'), outbox_discard('mine', 'm1'), outbox_replay('infinity');
SELECT count(*) FROM outbox.status;
SELECT * FROM pg_temp.tables_within_reach();
SELECT outbox_begin('grant-3');
\echo :SQLSTATE
SELECT outbox_grant('regress_outbox_admin');
\echo :SQLSTATE
RESET ROLE;

-- the same again changes nothing; several kinds add up
SELECT outbox_grant('regress_outbox_admin', 'admin');
SELECT outbox_grant('regress_outbox_admin', 'application');
SELECT count(*) FROM pg_temp.functions_within_reach('regress_outbox_admin');

-- what is refused
SELECT outbox_grant('regress_outbox_nobody');
\echo :SQLSTATE
SELECT outbox_grant(NULL);
\echo :SQLSTATE
SELECT outbox_grant('regress_outbox_app', 'everything');
\echo :SQLSTATE
SELECT outbox_revoke('regress_outbox_app', '');
\echo :SQLSTATE
SELECT outbox_grant('regress_outbox_app', NULL);
\echo :SQLSTATE

-- revoked: nothing is left, so the roles can be dropped
SELECT outbox_revoke('regress_outbox_app');
SET ROLE regress_outbox_app;
SELECT outbox_begin('grant-3');
\echo :SQLSTATE
RESET ROLE;
SELECT outbox_revoke('regress_outbox_monitor', 'monitor');
SET ROLE regress_outbox_monitor;
SELECT count(*) FROM outbox.status;
\echo :SQLSTATE
RESET ROLE;
SELECT outbox_revoke('regress_outbox_admin', 'admin');
SELECT * FROM pg_temp.functions_within_reach('regress_outbox_admin');
SELECT outbox_revoke('regress_outbox_admin', 'application');
DROP ROLE regress_outbox_app, regress_outbox_monitor, regress_outbox_admin;
DELETE FROM outbox.destination;
