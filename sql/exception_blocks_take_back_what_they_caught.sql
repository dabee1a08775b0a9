-- A PL/pgSQL block with EXCEPTION is a savepoint.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- All segments of the ring, for any may be the current one.
CREATE TEMP VIEW log AS
	SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
	SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3;

-- what the block enqueued is rolled back, the rest goes on
DO $$
BEGIN
	RAISE NOTICE 'new: %', outbox_begin('block-1');
	PERFORM outbox_enqueue('block', 'x', message_id => 'block-1-1');
	BEGIN
		PERFORM outbox_enqueue('block', 'x', message_id => 'block-1-gone');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM outbox_enqueue('block', 'x', message_id => 'block-1-2');
	END;
	RAISE NOTICE 'messages: %', outbox_commit();
END
$$;

-- the block that fails has opened the message
DO $$
BEGIN
	BEGIN
		PERFORM outbox_begin('block-2');
		PERFORM outbox_enqueue('block', 'x', message_id => 'block-2-gone');
		RAISE EXCEPTION 'the handler failed';
	EXCEPTION WHEN raise_exception THEN
		PERFORM outbox_enqueue('block', SQLERRM, message_id => 'no cause');
	END;
	RAISE NOTICE 'new: %', outbox_begin('block-2');
	RAISE NOTICE 'messages: %', outbox_commit();
END
$$;

-- the block that fails has sealed the message; a block that does not fail keeps all
DO $$
BEGIN
	PERFORM outbox_begin('block-3', concurrency => 'pessimistic');
	BEGIN
		PERFORM outbox_enqueue('block', 'x', message_id => 'block-3-gone');
		RAISE NOTICE 'messages: %', outbox_commit();
		RAISE EXCEPTION 'too late';
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	BEGIN
		PERFORM outbox_enqueue('block', 'x', message_id => 'block-3-1');
		RAISE NOTICE 'messages: %', outbox_commit();
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
END
$$;

-- errors of the outbox can be caught like all others
DO $$
DECLARE
	call text;
BEGIN
	PERFORM outbox_begin('block-4');
	FOREACH call IN ARRAY ARRAY[
		$a$SELECT outbox_begin('block-5')$a$,
		$a$SELECT outbox_begin('block-5', 'nowhere')$a$,
		$a$SELECT outbox_enqueue('outbox:', 'x')$a$,
		$a$SELECT outbox_enqueue('block', 'x', '[]')$a$]
	LOOP
		BEGIN
			EXECUTE call;
		EXCEPTION WHEN OTHERS THEN
			RAISE NOTICE '%: % %', call, SQLSTATE, SQLERRM;
		END;
	END LOOP;
	PERFORM outbox_enqueue('block', 'x', message_id => 'block-4-1');
	RAISE NOTICE 'messages: %', outbox_commit();
END
$$;

-- a message is left open in a block: the error comes at COMMIT, where no block can catch it
DO $$
BEGIN
	BEGIN
		PERFORM outbox_begin('block-6');
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE 'never';
END
$$;
\echo :SQLSTATE

-- a thousand messages, each in a block of its own, every third fails
DO $$
DECLARE
	done integer := 0;
BEGIN
	FOR n IN 1..1000 LOOP
		BEGIN
			PERFORM outbox_begin('loop-' || n);
			PERFORM outbox_enqueue('loop', 'x', message_id => 'loop-' || n);
			IF n % 3 = 0 THEN
				PERFORM 1 / 0;
			END IF;
			done := done + outbox_commit();
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
	RAISE NOTICE 'done: %', done;
END
$$;
SELECT count(*), count(*) FILTER (WHERE substr(msgid, 6)::integer % 3 = 0) AS failed FROM outbox.records WHERE msgid LIKE 'loop-%';
SELECT count(*), count(*) FILTER (WHERE cause <> message_id) AS strays FROM log WHERE dest = 'loop';

SELECT msgid FROM outbox.records WHERE msgid LIKE 'block-%' ORDER BY 1;
SELECT message_id, cause FROM log WHERE dest = 'block' ORDER BY id;
