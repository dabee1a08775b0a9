-- What a view makes for a row it frees before the next one: an endpoint may have many millions of records.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE TABLE uuid_inbox (message_id uuid PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz);
CREATE INDEX ON uuid_inbox (dispatched_at);
SELECT outbox_create_endpoint('inbox', record_table => 'inbox'), outbox_create_endpoint('uuid inbox', record_table => 'uuid_inbox');
BEGIN;
-- A cursor keeps the memory that a function used which it has called.
CREATE FUNCTION needs_memory(view text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	bytes bigint;
BEGIN
	OPEN c FOR EXECUTE format('SELECT * FROM %s', view);
	MOVE NEXT FROM c;
	SELECT sum(used_bytes) INTO bytes FROM pg_backend_memory_contexts WHERE name = 'ExprContext';
	CLOSE c;
	IF bytes >= 200000 THEN
		RAISE NOTICE '%: % bytes', view, bytes;
	END IF;
	RETURN bytes >= 200000;
END
$$;
SELECT needs_memory('outbox.records'), needs_memory('outbox.endpoints');
SAVEPOINT a;
INSERT INTO inbox SELECT 'm' || i, i % 2 = 0 FROM generate_series(1, 20000) i;
SELECT needs_memory('outbox.records'), needs_memory('outbox.endpoints');
ROLLBACK TO a;
INSERT INTO uuid_inbox SELECT gen_random_uuid() FROM generate_series(1, 20000);
SELECT needs_memory('outbox.records'), needs_memory('outbox.endpoints');
ROLLBACK TO a;
INSERT INTO outbox.record_0 (key, tx, endpoint, msgid) SELECT gen_random_uuid(), '1', 'elsewhere', 'm' || i FROM generate_series(1, 20000) i;
SELECT needs_memory('outbox.records'), needs_memory('outbox.endpoints');
ROLLBACK;
SELECT outbox_drop_endpoint('inbox', force => true), outbox_drop_endpoint('uuid inbox', force => true);
DROP TABLE inbox, uuid_inbox;
