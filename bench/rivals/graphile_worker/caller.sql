\set number random(1, 9000000000000000)
BEGIN;
INSERT INTO processed_messages (id) VALUES ('message-' || :number || '-' || :client_id) ON CONFLICT DO NOTHING;
INSERT INTO business (number, value) VALUES (:number, 'changed');
SELECT graphile_worker.add_job('publish', json_build_object('dest', 'bench', 'body', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}'));
COMMIT;
