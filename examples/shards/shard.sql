-- What each shard needs; its messages go to the partitions of one stream.
CREATE EXTENSION outbox;
CREATE TABLE orders (
	id text PRIMARY KEY,
	customer text NOT NULL,
	number integer NOT NULL
);
SELECT outbox_set_destination('order-events', partitions => 8);
