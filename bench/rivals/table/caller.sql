\set number random(1, 9000000000000000)
BEGIN;
INSERT INTO processed_messages (id) VALUES ('message-' || :number || '-' || :client_id) ON CONFLICT DO NOTHING;
INSERT INTO business (number, value) VALUES (:number, 'changed');
INSERT INTO outgoing_messages (dest, body) VALUES ('bench', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}');
COMMIT;
