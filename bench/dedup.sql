-- What bench/dedup calls.
CREATE EXTENSION outbox;
CREATE TABLE processed_messages (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON processed_messages (at);

CREATE FUNCTION handle(id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF NOT outbox_begin(id) THEN
		RETURN false;
	END IF;
	PERFORM outbox_commit();
	RETURN true;
END
$$;

CREATE FUNCTION rival(message text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO processed_messages (id) VALUES (message) ON CONFLICT DO NOTHING;
	RETURN found;
END
$$;

CREATE PROCEDURE fill(first integer, last integer, step integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN first .. last BY step LOOP
		PERFORM handle('m' || i);
		IF i / step % 1000 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END
$$;

CREATE FUNCTION outbox_bytes() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
	WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r' AND relname ~ '^(record|history)_[0-9]+$'
$$;

-- Segments that are on their way.
CREATE FUNCTION unsettled() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM outbox.ring
	WHERE ring <> 'log' AND (state IN ('sealed', 'filling', 'retired') OR compacted_into IS NOT NULL OR state = 'quiet' AND published_at IS NULL)
$$;
