-- For a single-user backend, which reads a command up to a semicolon before an empty line.
-- Each procedure runs transactions of one kind; ids begin behind the first argument.

CREATE EXTENSION outbox;

CREATE TABLE business (id bigserial PRIMARY KEY, value text);

CREATE TABLE processed_messages (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());

CREATE TABLE outgoing_messages (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(),
	at timestamptz NOT NULL DEFAULT now(), dest text NOT NULL, body text NOT NULL);

CREATE PROCEDURE business(start bigint, transactions int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..transactions LOOP
		INSERT INTO business (value) VALUES ('changed');
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE by_hand(start bigint, transactions int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..transactions LOOP
		INSERT INTO processed_messages (id) VALUES ('message-' || start + i) ON CONFLICT DO NOTHING;
		INSERT INTO business (value) VALUES ('changed');
		INSERT INTO outgoing_messages (dest, body) VALUES ('bench', '{"type": "BalanceChanged", "account": 12345, "delta": -100}');
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE record(start bigint, transactions int) LANGUAGE plpgsql AS $$
DECLARE
	new boolean;
	messages int;
BEGIN
	FOR i IN 1..transactions LOOP
		new := outbox_begin('message-' || start + i);
		INSERT INTO business (value) VALUES ('changed');
		messages := outbox_commit();
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE one_message(start bigint, transactions int) LANGUAGE plpgsql AS $$
DECLARE
	new boolean;
	id text;
	messages int;
BEGIN
	FOR i IN 1..transactions LOOP
		new := outbox_begin('message-' || start + i);
		INSERT INTO business (value) VALUES ('changed');
		id := outbox_enqueue('bench', '{"type": "BalanceChanged", "account": 12345, "delta": -100}'::text);
		messages := outbox_commit();
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE two_messages(start bigint, transactions int) LANGUAGE plpgsql AS $$
DECLARE
	new boolean;
	id text;
	messages int;
BEGIN
	FOR i IN 1..transactions LOOP
		new := outbox_begin('message-' || start + i);
		INSERT INTO business (value) VALUES ('changed');
		id := outbox_enqueue('bench', '{"type": "BalanceChanged", "account": 12345, "delta": -100}'::text);
		id := outbox_enqueue('bench', '{"type": "BalanceChanged", "account": 12345, "delta": -100}'::text);
		messages := outbox_commit();
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE enqueued(start bigint, transactions int) LANGUAGE plpgsql AS $$
DECLARE
	id text;
BEGIN
	FOR i IN 1..transactions LOOP
		INSERT INTO business (value) VALUES ('changed');
		id := outbox_enqueue('bench', '{"op":"insert","schema":"public","table":"captured","key":{"id":12345},"after":{"id":12345,"value":"changed"}}'::text);
		COMMIT;
	END LOOP;
END $$;

CREATE TABLE captured (LIKE business INCLUDING ALL);

SELECT outbox_capture('captured', 'bench');

CREATE PROCEDURE captured(start bigint, transactions int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..transactions LOOP
		INSERT INTO captured (value) VALUES ('changed');
		COMMIT;
	END LOOP;
END $$;

CREATE TABLE forwarded (LIKE business INCLUDING ALL);

CREATE TRIGGER forward AFTER INSERT ON forwarded FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''bench''', 'body=value', 'id=id');

CREATE PROCEDURE forwarded(start bigint, transactions int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..transactions LOOP
		INSERT INTO forwarded (value) VALUES ('changed');
		COMMIT;
	END LOOP;
END $$;

