\set number random(1, 9000000000000000)
WITH
	n AS (INSERT INTO processed_messages (id) VALUES ('message-' || :number || '-' || :client_id) ON CONFLICT DO NOTHING RETURNING id),
	i AS (INSERT INTO business (number, value) SELECT :number, 'changed' FROM n RETURNING id)
INSERT INTO outgoing_messages (dest, body) SELECT 'bench', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}' FROM i;
