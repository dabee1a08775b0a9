\set number random(1, 900000000000000) * 10
BEGIN;
SELECT outbox_begin('message-' || :number || '-' || :client_id);
INSERT INTO business (number, value) VALUES (:number, 'changed');
SELECT outbox_enqueue_many('bench', array_agg('{"type": "BalanceChanged", "account": ' || :number::bigint + i || ', "delta": -100}'))
	FROM generate_series(0, 9) i;
SELECT outbox_commit();
COMMIT;
