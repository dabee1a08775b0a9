-- A procedure that commits in a loop: each COMMIT ends what was open, and nothing remains for the next turn.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

CREATE PROCEDURE consume(first integer, last integer) LANGUAGE plpgsql AS $$
DECLARE
	is_new boolean;
BEGIN
	FOR n IN first..last LOOP
		is_new := outbox_begin('proc-' || n);
		IF is_new THEN
			PERFORM outbox_enqueue('proc', 'x', message_id => 'proc-' || n);
		END IF;
		IF n % 10 = 7 THEN
			ROLLBACK;
			CONTINUE;
		END IF;
		IF outbox_commit() <> is_new::integer THEN
			RAISE EXCEPTION 'message % carries something else', n;
		END IF;
		COMMIT;
	END LOOP;
END
$$;
CALL consume(1, 100);
-- those that were rolled back are new now, the others duplicates
CALL consume(1, 107);
SELECT count(*), count(DISTINCT tx) AS transactions FROM outbox.records WHERE msgid LIKE 'proc-%';
SELECT count(*), count(DISTINCT tx) AS transactions FROM log WHERE dest = 'proc';
SELECT count(*) FROM outbox.records WHERE msgid LIKE 'proc-%7';

-- the same in a DO block; a COMMIT with an open message is refused and rolls back only that message
DO $$
BEGIN
	FOR n IN 201..210 LOOP
		PERFORM outbox_begin('proc-' || n);
		PERFORM outbox_enqueue('proc', 'x', message_id => 'proc-' || n);
		IF n = 205 THEN
			COMMIT;
		END IF;
		PERFORM outbox_commit();
		COMMIT;
	END LOOP;
END
$$;
\echo :SQLSTATE
SELECT msgid FROM outbox.records WHERE msgid LIKE 'proc-2__' ORDER BY 1;
SELECT count(*) FROM log WHERE message_id LIKE 'proc-2__';

-- each transaction has its own isolation level
DO $$
BEGIN
	FOR n IN 301..303 LOOP
		COMMIT;
		SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
		PERFORM outbox_begin('proc-' || n, concurrency => 'pessimistic');
		PERFORM outbox_commit();
	END LOOP;
END
$$;
SELECT msgid FROM outbox.records WHERE msgid LIKE 'proc-3__' ORDER BY 1;
DROP PROCEDURE consume;
