-- Which tables may be custom record tables; the error names what is missing.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE SCHEMA fit;
CREATE FUNCTION fit.try(record_table regclass, record_columns jsonb DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM outbox_create_endpoint('fit', record_table => try.record_table, record_columns => try.record_columns);
	PERFORM outbox_drop_endpoint('fit');
	RETURN 'fits';
EXCEPTION WHEN others THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', SQLSTATE || ' ' || regexp_replace(SQLERRM, 'pg_temp_\d+', 'pg_temp'), nullif(detail, ''), nullif(hint, ''));
END
$$;
\pset format unaligned
\pset tuples_only on

-- columns with the default names, or others
CREATE TABLE fit.plain (message_id text PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz);
SELECT fit.try('fit.plain');
CREATE INDEX ON fit.plain (dispatched_at);
SELECT fit.try('fit.plain');
CREATE TABLE fit.named (n bigserial PRIMARY KEY, "The Ref" uuid, done boolean, done_at timestamp, operations text, priority int NOT NULL DEFAULT 0);
SELECT fit.try('fit.named');
SELECT fit.try('fit.named', '{"message_id": "The Ref"}');
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "done"}');
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "done", "dispatched_at": "done_at"}');
CREATE UNIQUE INDEX ON fit.named ("The Ref");
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "done", "dispatched_at": "done_at"}');
CREATE INDEX ON fit.named (done_at) WHERE done;
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "done", "dispatched_at": "done_at"}');

-- the mapping
SELECT fit.try('fit.plain', '[]');
SELECT fit.try('fit.plain', '{"message_id": 1}');
SELECT fit.try('fit.plain', '{"message_id": ""}');
SELECT fit.try('fit.plain', '{"ref": "message_id"}');
SELECT fit.try('fit.plain', '{"message_id": "ctid"}');
SELECT fit.try('fit.named', '{"message_id": "n", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "operations", "dispatched_at": "done_at"}');
SELECT fit.try('fit.named', '{"message_id": "The Ref", "dispatched": "done", "dispatched_at": "done"}');

-- what is not a plain table
CREATE VIEW fit.a_view AS SELECT * FROM fit.plain;
SELECT fit.try('fit.a_view');
CREATE MATERIALIZED VIEW fit.a_matview AS SELECT * FROM fit.plain;
SELECT fit.try('fit.a_matview');
CREATE TABLE fit.a_partitioned_table (LIKE fit.plain) PARTITION BY LIST (dispatched);
SELECT fit.try('fit.a_partitioned_table');
CREATE TABLE fit.a_partition PARTITION OF fit.a_partitioned_table DEFAULT;
SELECT fit.try('fit.a_partition');
CREATE FOREIGN DATA WRAPPER fit_wrapper;
CREATE SERVER fit_server FOREIGN DATA WRAPPER fit_wrapper;
CREATE FOREIGN TABLE fit.a_foreign_table (message_id text, dispatched boolean, dispatched_at timestamptz) SERVER fit_server;
SELECT fit.try('fit.a_foreign_table');
CREATE UNLOGGED TABLE fit.an_unlogged_table (LIKE fit.plain INCLUDING ALL);
SELECT fit.try('fit.an_unlogged_table');
ALTER TABLE fit.an_unlogged_table SET LOGGED;
SELECT fit.try('fit.an_unlogged_table');
CREATE TEMP TABLE a_temp_table (LIKE fit.plain INCLUDING ALL);
SELECT fit.try('a_temp_table');
SELECT fit.try('fit.named_n_seq');
SELECT fit.try('fit.plain_pkey');
SELECT fit.try('pg_class');
SELECT fit.try('outbox.record_0');
SELECT fit.try(0);

-- the unique index
CREATE TABLE fit.t (message_id text, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON fit.t (dispatched, dispatched_at);
CREATE INDEX t_plain ON fit.t (message_id);
SELECT fit.try('fit.t');
CREATE UNIQUE INDEX t_partial ON fit.t (message_id) WHERE dispatched;
SELECT fit.try('fit.t');
DROP INDEX fit.t_partial;
CREATE UNIQUE INDEX t_blanks ON fit.t (message_id bpchar_ops);
SELECT fit.try('fit.t');
DROP INDEX fit.t_blanks;
CREATE UNIQUE INDEX t_pattern ON fit.t (message_id text_pattern_ops);
SELECT fit.try('fit.t');
DROP INDEX fit.t_pattern;
CREATE UNIQUE INDEX t_collated ON fit.t (message_id COLLATE "C");
SELECT fit.try('fit.t');
DROP INDEX fit.t_collated;
CREATE UNIQUE INDEX t_expression ON fit.t (lower(message_id));
SELECT fit.try('fit.t');
DROP INDEX fit.t_expression;
CREATE UNIQUE INDEX t_wide ON fit.t (message_id, dispatched);
SELECT fit.try('fit.t');
DROP INDEX fit.t_wide;
ALTER TABLE fit.t ADD CONSTRAINT t_deferrable UNIQUE (message_id) DEFERRABLE;
SELECT fit.try('fit.t');
ALTER TABLE fit.t DROP CONSTRAINT t_deferrable;
CREATE UNIQUE INDEX t_good ON fit.t (message_id) INCLUDE (dispatched);
SELECT fit.try('fit.t');
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'fit.t_good'::regclass;
SELECT fit.try('fit.t');
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'fit.t_good'::regclass;
SELECT fit.try('fit.t');

-- the index for cleanup
DROP INDEX fit.t_dispatched_dispatched_at_idx;
SELECT fit.try('fit.t');
CREATE INDEX ON fit.t (dispatched_at) WHERE NOT dispatched;
SELECT fit.try('fit.t');
CREATE INDEX ON fit.t USING brin (dispatched_at);
SELECT fit.try('fit.t');
CREATE INDEX ON fit.t (dispatched_at DESC) WHERE dispatched = true;
SELECT fit.try('fit.t');

-- other columns, rules, triggers, policies
ALTER TABLE fit.t ADD COLUMN tenant text NOT NULL;
SELECT fit.try('fit.t');
ALTER TABLE fit.t ALTER COLUMN tenant DROP NOT NULL;
SELECT fit.try('fit.t');
CREATE DOMAIN fit.given AS text NOT NULL;
CREATE DOMAIN fit.short AS fit.given CHECK (length(VALUE) < 9);
ALTER TABLE fit.t ADD COLUMN region fit.short;
SELECT fit.try('fit.t');
ALTER DOMAIN fit.short SET DEFAULT 'north';
SELECT fit.try('fit.t');
ALTER DOMAIN fit.short DROP DEFAULT;
ALTER DOMAIN fit.given DROP NOT NULL;
SELECT fit.try('fit.t');
CREATE RULE swallow AS ON INSERT TO fit.t DO INSTEAD NOTHING;
SELECT fit.try('fit.t');
DROP RULE swallow ON fit.t;
CREATE FUNCTION fit.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON fit.t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fit.nothing();
SELECT fit.try('fit.t');
DROP TRIGGER later ON fit.t;
ALTER TABLE fit.t ADD FOREIGN KEY (tenant) REFERENCES fit.plain DEFERRABLE;
SELECT fit.try('fit.t');
ALTER TABLE fit.t DROP CONSTRAINT t_tenant_fkey;
ALTER TABLE fit.t ENABLE ROW LEVEL SECURITY;
SELECT fit.try('fit.t');
ALTER TABLE fit.t FORCE ROW LEVEL SECURITY;
SELECT fit.try('fit.t');
ALTER TABLE fit.t NO FORCE ROW LEVEL SECURITY;
ALTER TABLE fit.t ADD COLUMN twin text GENERATED ALWAYS AS (message_id) STORED UNIQUE;
SELECT fit.try('fit.t');
SELECT fit.try('fit.t', '{"message_id": "twin"}');

-- one table, one endpoint
SELECT outbox_create_endpoint('first', record_table => 'fit.plain');
SELECT fit.try('fit.plain');
SELECT outbox_create_endpoint('second', 'pessimistic');
SELECT outbox_alter_endpoint('second', record_table => 'fit.plain');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('second', record_table => 'fit.a_view');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('second', record_columns => '{"dispatched": "done"}');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('second', record_table => 'fit.named', record_columns => '{"message_id": "The Ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_alter_endpoint('second', record_columns => '{"message_id": "nothing"}');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('second', retention => '1 day');
-- wrong columns in one endpoint's row affect no other endpoint
CREATE TABLE fit.third (LIKE fit.plain INCLUDING ALL);
INSERT INTO outbox.endpoint (name, record_table, record_columns) VALUES ('third', 'fit.third', '["message_id"]');
SELECT outbox_begin('id', 'third');
\echo :SQLSTATE
BEGIN;
SELECT outbox_begin('id', 'first', 'pessimistic');
ROLLBACK;
SELECT count(*) FROM outbox.endpoints WHERE name IN ('first', 'second', 'third');
SELECT outbox_alter_endpoint('third', reset => '{record_columns}');
BEGIN;
SELECT outbox_begin('id', 'third');
ROLLBACK;
SELECT outbox_drop_endpoint('third');
SELECT * FROM outbox.endpoint WHERE name IN ('first', 'second') ORDER BY name;
SELECT outbox_alter_endpoint('second', reset => '{record_table}');
SELECT * FROM outbox.endpoint WHERE name = 'second';

-- only tables of the caller's own
CREATE ROLE regress_outbox_admin_1;
CREATE ROLE regress_outbox_admin_2;
SELECT outbox_grant('regress_outbox_admin_1', 'admin'), outbox_grant('regress_outbox_admin_2', 'admin');
CREATE TABLE fit.mine (LIKE fit.plain INCLUDING ALL);
ALTER TABLE fit.mine OWNER TO regress_outbox_admin_1;
GRANT ALL ON SCHEMA fit TO regress_outbox_admin_1, regress_outbox_admin_2;
GRANT ALL ON fit.mine TO regress_outbox_admin_2;
SET ROLE regress_outbox_admin_2;
SELECT fit.try('fit.mine');
SET ROLE regress_outbox_admin_1;
SELECT fit.try('fit.mine');
-- also if a SECURITY DEFINER function of such a role calls it
CREATE FUNCTION fit.as_admin_1(t regclass) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT fit.try(t)';
RESET ROLE;
SELECT fit.as_admin_1('fit.mine');
SELECT fit.as_admin_1('fit.t');

SELECT outbox_drop_endpoint('first'), outbox_drop_endpoint('second');
SET client_min_messages = warning;
SELECT outbox_revoke('regress_outbox_admin_1', 'admin'), outbox_revoke('regress_outbox_admin_2', 'admin');
DROP SCHEMA fit CASCADE;
DROP FOREIGN DATA WRAPPER fit_wrapper CASCADE;
DROP ROLE regress_outbox_admin_1, regress_outbox_admin_2;
