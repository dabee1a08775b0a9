-- Messages are written to the WAL and to no table: nothing is cheaper for the caller.
CREATE PUBLICATION bench;
CREATE TABLE processed_messages (
	id text PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);
