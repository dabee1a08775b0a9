-- A table for outgoing messages, and one for the ids of incoming ones, as teams write them by hand.
CREATE TABLE processed_messages (
	id text PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE outgoing_messages (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	at timestamptz NOT NULL DEFAULT now(),
	dest text NOT NULL,
	body text NOT NULL
);
