-- The relay makes the schema itself.
CREATE TABLE processed_messages (
	id text PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);
