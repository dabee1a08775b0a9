\set number random(1, 9000000000000000)
\set endpoint random(1, :number_of)
BEGIN;
SELECT outbox_begin('message-' || :number || '-' || :client_id, 'endpoint-' || :endpoint);
INSERT INTO business (number, value) VALUES (:number, 'changed');
SELECT outbox_enqueue('bench', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}');
SELECT outbox_commit();
COMMIT;
