\set number random(1, 9000000000000000)
WITH
	n AS MATERIALIZED (SELECT outbox_begin('message-' || :number || '-' || :client_id) AS new),
	i AS (INSERT INTO business (number, value) SELECT :number, 'changed' FROM n WHERE new RETURNING id)
SELECT outbox_enqueue('bench', '{"type": "BalanceChanged", "account": ' || :number || ', "delta": -100}'), outbox_commit() FROM i;
