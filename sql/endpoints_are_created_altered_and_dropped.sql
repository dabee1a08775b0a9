-- The settings of endpoints, and which are refused.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never

SELECT outbox_create_endpoint('plain');
SELECT outbox_create_endpoint('full', 'pessimistic', '2 days');
SELECT outbox_create_endpoint(name => 'short', retention => '1 hour');
SELECT outbox_create_endpoint('  spaces and "quotes" ', concurrency => 'optimistic');
SELECT * FROM outbox.endpoint ORDER BY name COLLATE "C";

SELECT outbox_create_endpoint('plain');
\echo :SQLSTATE
SELECT outbox_create_endpoint(NULL);
\echo :SQLSTATE
SELECT outbox_create_endpoint('');
\echo :SQLSTATE
SELECT outbox_create_endpoint(repeat(chr(8364), 341) || 'x');
SELECT outbox_drop_endpoint(repeat(chr(8364), 341) || 'x');
SELECT outbox_create_endpoint(repeat(chr(8364), 341) || 'xx');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', 'eager');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', '');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', retention => '0');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', retention => '-1 hour');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', retention => 'soon');
\echo :SQLSTATE
SELECT count(*) FROM outbox.endpoint WHERE name = 'bad';

-- ALTER changes what it is given, and nothing else
SELECT outbox_alter_endpoint('plain', 'pessimistic', '1 day');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
SELECT outbox_alter_endpoint('plain', retention => '3 days');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
SELECT outbox_alter_endpoint('plain');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
-- what is reset gets its default again
SELECT outbox_alter_endpoint('plain', reset => '{concurrency}');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
SELECT outbox_alter_endpoint('plain', concurrency => 'optimistic', reset => '{retention}');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
SELECT outbox_alter_endpoint('plain', reset => '{concurrency,retention,record_table,record_columns,dedup_store,store_retention}');
SELECT * FROM outbox.endpoint WHERE name = 'plain';
SELECT outbox_alter_endpoint('plain', 'optimistic', reset => '{concurrency}');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', reset => '{name}');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', reset => '{NULL}');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', reset => '{}');
SELECT outbox_create_endpoint('bad', dedup_store => '');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', dedup_store => 'postgresql://shard@/app?service=shop');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', record_columns => '{"message_id": "ref"}');
\echo :SQLSTATE
-- how long a store is to keep ids
SELECT outbox_create_endpoint('bad', store_retention => '1 day');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', store_retention => '1 day');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', dedup_store => 'redis://127.0.0.1:1', store_retention => '-1 day');
\echo :SQLSTATE
SELECT outbox_create_endpoint('bad', dedup_store => 'redis://127.0.0.1:1', store_retention => '599 s');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('nowhere', 'optimistic');
\echo :SQLSTATE
SELECT outbox_alter_endpoint(NULL, 'optimistic');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', 'eager');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('plain', retention => '-1 s');
\echo :SQLSTATE

-- "default" is there without having been created
SELECT outbox_create_endpoint('default', 'pessimistic');
\echo :SQLSTATE
SELECT outbox_alter_endpoint('default', 'pessimistic');
SELECT outbox_alter_endpoint('default', NULL, '1 day');
SELECT * FROM outbox.endpoint WHERE name = 'default';
SELECT outbox_create_endpoint('default');
\echo :SQLSTATE
SELECT outbox_drop_endpoint('default');
BEGIN;
SELECT outbox_begin('endpoint-1', 'default');
ROLLBACK;

SELECT outbox_drop_endpoint('plain');
SELECT outbox_drop_endpoint('plain');
\echo :SQLSTATE
SELECT outbox_drop_endpoint('');
\echo :SQLSTATE
SELECT outbox_drop_endpoint(NULL);
\echo :SQLSTATE
SELECT outbox_drop_endpoint('full', NULL);
\echo :SQLSTATE

-- created and used in one transaction, and gone with it
BEGIN;
SELECT outbox_create_endpoint('brief');
SELECT outbox_begin('endpoint-1', 'brief'), outbox_commit();
ROLLBACK;
SELECT outbox_begin('endpoint-1', 'brief');
\echo :SQLSTATE
BEGIN;
SAVEPOINT a;
SELECT outbox_create_endpoint('brief');
ROLLBACK TO a;
SELECT outbox_begin('endpoint-1', 'brief');
\echo :SQLSTATE
ROLLBACK;
-- dropped with a message of it open
BEGIN;
SELECT outbox_begin('endpoint-1', 'full');
SELECT outbox_drop_endpoint('full');
SELECT outbox_commit();
COMMIT;
SELECT endpoint, msgid FROM outbox.records WHERE msgid = 'endpoint-1';

-- with messages that are not sent yet
SELECT outbox_create_endpoint('busy'), outbox_create_endpoint('other');
SELECT outbox_pause('endpoint-test');
BEGIN;
SELECT outbox_begin('endpoint-2', 'busy'), outbox_enqueue('endpoint-test', 'x') IS NOT NULL AS enqueued, outbox_commit();
COMMIT;
SELECT outbox_drop_endpoint('other');
SELECT outbox_drop_endpoint('busy');
\echo :SQLSTATE
SELECT count(*) FROM outbox.endpoint WHERE name = 'busy';
SELECT outbox_drop_endpoint('busy', force => true);
SELECT count(*) FROM outbox.endpoint WHERE name = 'busy';
SELECT count(*) FROM outbox.pending WHERE cause = 'endpoint-2';
SELECT outbox_resume('endpoint-test');

SELECT outbox_drop_endpoint('short'), outbox_drop_endpoint('  spaces and "quotes" ');
SELECT count(*) FROM outbox.endpoint;
BEGIN;
SELECT outbox_create_endpoint('stored', retention => '1 s', dedup_store => 'redis://127.0.0.1:1', store_retention => '90 days');
SELECT retention, store_retention FROM outbox.endpoints WHERE name = 'stored';
SELECT outbox_alter_endpoint('stored', retention => '1 day', reset => '{store_retention}');
SELECT retention, store_retention FROM outbox.endpoints WHERE name = 'stored';
SELECT outbox_alter_endpoint('stored', store_retention => '600 s');
SELECT retention, store_retention FROM outbox.endpoints WHERE name = 'stored';
SELECT outbox_alter_endpoint('stored', retention => '1 s', reset => '{dedup_store}');
SELECT retention, store_retention FROM outbox.endpoints WHERE name = 'stored';
SELECT outbox_alter_endpoint('stored', store_retention => '1 day', reset => '{dedup_store}');
ROLLBACK;
