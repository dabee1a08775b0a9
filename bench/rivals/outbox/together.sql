\set number random(1, 9000000000000000)
BEGIN;
SELECT outbox_begin('message-' || :number || '-' || :client_id);
INSERT INTO business (number, value) VALUES (:number, 'changed');
SELECT outbox_enqueue('bench', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}'), outbox_commit();
COMMIT;
