-- Sessions are pooled: whatever a transaction did, it does not affect the next one.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- each failure leaves a clean session: no message is open
CREATE PROCEDURE pg_temp.check_clean() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_commit();
	RAISE EXCEPTION 'a message was open';
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE NOTICE 'clean';
END
$$;

BEGIN;
SELECT outbox_begin('reuse-1');
SELECT 1 / 0;
ROLLBACK;
CALL pg_temp.check_clean();

BEGIN;
SELECT outbox_begin('reuse-1', concurrency => 'pessimistic');
SELECT outbox_enqueue('reuse', 'x', NULL, 'reuse-1-gone');
SELECT nonsense;
COMMIT;
CALL pg_temp.check_clean();

BEGIN;
SELECT outbox_begin('reuse-1');
COMMIT;
CALL pg_temp.check_clean();

BEGIN;
SAVEPOINT a;
SELECT outbox_begin('reuse-1');
SAVEPOINT b;
SELECT 1 / 0;
ROLLBACK;
CALL pg_temp.check_clean();

BEGIN;
SELECT outbox_begin('reuse-1');
ROLLBACK AND CHAIN;
SELECT outbox_begin('reuse-1'), outbox_commit();
COMMIT;
SELECT outbox_begin('reuse-1');
CALL pg_temp.check_clean();

-- a statement that is cancelled
SET statement_timeout = '50 ms';
BEGIN;
SELECT outbox_begin('reuse-2'), outbox_enqueue('reuse', 'x', NULL, 'reuse-2-gone'), pg_sleep(60);
ROLLBACK;
RESET statement_timeout;
CALL pg_temp.check_clean();

-- what poolers do between two clients
BEGIN;
SELECT outbox_begin('reuse-2');
ROLLBACK;
DISCARD ALL;
SELECT outbox_begin('reuse-2') AS is_new, outbox_commit() AS messages;

SELECT msgid FROM outbox.records WHERE msgid LIKE 'reuse-%' ORDER BY 1;
SELECT count(*) FROM outbox.pending WHERE dest = 'reuse';
