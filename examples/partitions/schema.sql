-- What workers on partitions need in their database, which has the extension.

-- How far a group of workers is in each partition of a stream. All that keeps the order
-- and lets each message count once is in this row: whoever takes the partition raises the
-- token, so what its predecessor still has in hand is refused.
CREATE TABLE consumer_position (
	consumers text,
	stream text,
	partition integer,
	epoch bigint NOT NULL,              -- the layout that it has reached: all of earlier ones is processed
	entry text NOT NULL DEFAULT '0-0',   -- the last entry that was processed,
	message text,                        -- and the id of its message; NULL: read again from there
	token bigint NOT NULL DEFAULT 0,     -- how many times the partition was taken
	PRIMARY KEY (consumers, stream, partition)
) WITH (fillfactor = 50);

-- Entries that no worker could process.
CREATE TABLE dead_entry (
	consumers text,
	stream text,
	partition integer,
	entry text,
	fields bytea NOT NULL,
	error text NOT NULL,
	at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (consumers, stream, partition, entry)
);

-- What the handler of this example does: it writes down what it got. A bigserial, so the
-- order in which handlers ran can be seen.
CREATE TABLE handled (
	place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	key text,
	body text NOT NULL,
	worker text NOT NULL
);

-- One endpoint for each group. Ids are remembered for longer than entries may come again.
SELECT outbox_create_endpoint('billing', retention => '7 days');
