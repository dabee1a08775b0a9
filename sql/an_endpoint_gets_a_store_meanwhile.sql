-- An id whose endpoint gets a store, or another record table, while the id is being processed must be processed again.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
SELECT outbox_create_endpoint('meanwhile');

BEGIN;
SELECT outbox_begin('id', 'meanwhile');
SELECT outbox_alter_endpoint('meanwhile', dedup_store => 'redis://127.0.0.1:1');
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;

-- also if it was claimed before that
BEGIN;
SELECT outbox_begin('id', 'meanwhile', 'pessimistic');
SELECT outbox_alter_endpoint('meanwhile', dedup_store => 'redis://127.0.0.1:1');
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;

-- also if ids are kept for ever
SELECT outbox_alter_endpoint('meanwhile', retention => '300000 years');
BEGIN;
SELECT outbox_begin('id', 'meanwhile');
SELECT outbox_alter_endpoint('meanwhile', dedup_store => 'redis://127.0.0.1:1');
SELECT outbox_commit();
\echo :SQLSTATE
ROLLBACK;

-- other settings do not matter
BEGIN;
SELECT outbox_begin('id', 'meanwhile', 'pessimistic');
SELECT outbox_alter_endpoint('meanwhile', retention => '1 day');
SELECT outbox_commit();
ROLLBACK;
SELECT outbox_drop_endpoint('meanwhile');
