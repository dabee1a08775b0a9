\set number random(1, 1000000000000)
BEGIN;
SELECT outbox_begin('message-' || :number || '-' || :client_id);
INSERT INTO business (value) VALUES ('changed');
SELECT outbox_enqueue('bench', '{"type": "BalanceChanged", "account": 12345, "delta": -100}'::text);
SELECT outbox_commit();
COMMIT;
