-- outbox_enqueued(): for tests, which roll back what they look at.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TEMP VIEW mine AS SELECT message_id, dest, cause, headers, convert_from(body, 'UTF8') AS body, deliver_at AT TIME ZONE 'UTC' AS deliver_at FROM outbox_enqueued();

SELECT outbox_enqueue('mine', 'of another transaction', NULL, 'm0');
SELECT * FROM mine;
BEGIN;
SELECT * FROM mine;
SELECT outbox_enqueue('mine', 'a', '{"h": 1}', 'm1'), outbox_begin('mine-1'), outbox_enqueue('yours', 'b', NULL, 'm2', '2500-01-01 00:00Z'), outbox_commit();
SAVEPOINT s;
SELECT outbox_enqueue_many('mine', array_fill('gone'::text, ARRAY[200]));
SELECT count(*) FROM mine;
ROLLBACK TO s;
SELECT outbox_enqueue('mine', 'ü' || repeat('x', 3), NULL, 'm3');
SELECT * FROM mine;
SELECT outbox_enqueue('large', repeat('0123456789', 100000), NULL, 'm4');
SELECT message_id, length(body) FROM mine WHERE dest = 'large';
ROLLBACK;
SELECT count(*) FROM mine;
-- Receipts are no messages; each statement of autocommit is a transaction.
SELECT outbox_begin('mine-2'), outbox_enqueue('mine', 'x', NULL, 'm5'), outbox_commit(), (SELECT count(*) FROM mine);
SELECT count(*) FROM mine;

-- It is granted with admin, and needs no privilege on what it reads.
CREATE ROLE regress_outbox_tester;
SELECT outbox_grant('regress_outbox_tester'), outbox_grant('regress_outbox_tester', 'admin');
BEGIN;
SET LOCAL ROLE regress_outbox_tester;
SELECT outbox_enqueue('mine', 'x', NULL, 'm6');
SELECT message_id, dest FROM outbox_enqueued();
SELECT * FROM outbox.read_enqueued();
\echo :SQLSTATE
ROLLBACK;
SELECT outbox_revoke('regress_outbox_tester'), outbox_revoke('regress_outbox_tester', 'admin');
DROP ROLE regress_outbox_tester;
