-- The concurrency is that of the call, else that of the endpoint, else outbox.concurrency.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;

-- A pessimistic begin has claimed the message, so its record is there before outbox_commit().
CREATE FUNCTION pg_temp.concurrency_of(endpoint text, concurrency text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	id text := gen_random_uuid();
	claimed_by_begin boolean;
	claimed_by_commit boolean;
BEGIN
	IF NOT outbox_begin(id, endpoint, concurrency) THEN
		RAISE EXCEPTION 'not new';
	END IF;
	claimed_by_begin := EXISTS (SELECT FROM outbox.records WHERE msgid = id);
	PERFORM outbox_commit();
	claimed_by_commit := EXISTS (SELECT FROM outbox.records WHERE msgid = id);
	RETURN CASE WHEN NOT claimed_by_commit THEN 'lost' WHEN claimed_by_begin THEN 'pessimistic' ELSE 'optimistic' END;
END
$$;
SELECT outbox_create_endpoint('hopeful', 'optimistic');
SELECT outbox_create_endpoint('careful', 'pessimistic');
SELECT outbox_create_endpoint('either');
CREATE TEMP VIEW outcome AS
	SELECT endpoint, call, pg_temp.concurrency_of(endpoint, call) AS concurrency
	FROM unnest('{NULL,hopeful,careful,either}'::text[]) WITH ORDINALITY e (endpoint, n),
		unnest('{NULL,optimistic,pessimistic}'::text[]) WITH ORDINALITY c (call, m)
	ORDER BY n, m;

SHOW outbox.concurrency;
SELECT * FROM outcome;
SET outbox.concurrency = 'pessimistic';
SELECT * FROM outcome WHERE call IS NULL;
BEGIN;
SET LOCAL outbox.concurrency = 'optimistic';
SELECT * FROM outcome WHERE call IS NULL;
COMMIT;

-- A change takes effect with the next begin, also within the transaction, and not if it is rolled back.
RESET outbox.concurrency;
BEGIN;
SELECT outbox_alter_endpoint('either', 'pessimistic');
SELECT pg_temp.concurrency_of('either', NULL);
SAVEPOINT a;
SELECT outbox_alter_endpoint('either', 'optimistic');
SELECT pg_temp.concurrency_of('either', NULL);
ROLLBACK TO a;
SELECT pg_temp.concurrency_of('either', NULL);
ROLLBACK;
SELECT pg_temp.concurrency_of('either', NULL);

-- the default endpoint can have one, too
SELECT outbox_alter_endpoint('default', 'pessimistic');
SELECT pg_temp.concurrency_of(NULL, NULL);
SELECT pg_temp.concurrency_of('default', NULL);
SELECT outbox_drop_endpoint('default');
SELECT pg_temp.concurrency_of(NULL, NULL);

-- a pessimistic claim and an optimistic one are the same record
BEGIN;
SELECT outbox_begin('mixed-1', 'either', 'pessimistic'), outbox_commit();
SELECT outbox_begin('mixed-1', 'either', 'optimistic');
SELECT outbox_begin('mixed-2', 'either', 'optimistic'), outbox_commit();
SELECT outbox_begin('mixed-2', 'either', 'pessimistic');
ROLLBACK;

SELECT outbox_drop_endpoint(name) FROM unnest('{hopeful,careful,either}'::text[]) name;
