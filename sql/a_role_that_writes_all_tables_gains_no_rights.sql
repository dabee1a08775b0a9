-- A role that can write to all tables cannot have the server connect anywhere, or write to a table of another role, by writing to outbox.endpoint.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- left behind by a run that was interrupted
SET client_min_messages = warning; DROP ROLE IF EXISTS regress_outbox_writer; RESET client_min_messages;
CREATE ROLE regress_outbox_writer IN ROLE pg_read_all_data, pg_write_all_data;
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('stored', dedup_store => 'postgresql:///elsewhere');
GRANT CREATE ON SCHEMA public TO regress_outbox_writer;
SET ROLE regress_outbox_writer;
CREATE TABLE own_inbox (LIKE inbox INCLUDING ALL);

-- A store would be connected to as the operating system user of the server, who may be a superuser there.
INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('x', 'postgresql:///?host=/tmp');
UPDATE outbox.endpoint SET dedup_store = 'postgresql:///?host=/tmp' WHERE name = 'stored';
INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('stored', 'redis://h') ON CONFLICT (name) DO UPDATE SET dedup_store = 'redis://h';
COPY outbox.endpoint (name, dedup_store) FROM STDIN;
x	unix:///tmp/redis.sock
\.
-- Rows of a record table are written with the rights of its owner.
INSERT INTO outbox.endpoint (name, record_table) VALUES ('x', 'inbox');
INSERT INTO outbox.endpoint (name, record_table) VALUES ('x', 'own_inbox');
UPDATE outbox.endpoint SET record_table = 'inbox' WHERE name = 'x';
-- The rest is like any other table.
UPDATE outbox.endpoint SET retention = '1 day' WHERE name IN ('stored', 'x');
UPDATE outbox.endpoint SET dedup_store = NULL WHERE name = 'stored';
RESET ROLE;
SELECT name, retention, record_table, dedup_store FROM outbox.endpoint WHERE name IN ('stored', 'x') ORDER BY name;

-- A superuser may name both, as a restore does.
UPDATE outbox.endpoint SET dedup_store = 'redis://h' WHERE name = 'stored';
UPDATE outbox.endpoint SET record_table = 'inbox' WHERE name = 'x';
SELECT outbox_drop_endpoint('stored', force => true), outbox_drop_endpoint('x', force => true);
DROP TABLE inbox, own_inbox;
REVOKE CREATE ON SCHEMA public FROM regress_outbox_writer;
DROP ROLE regress_outbox_writer;
