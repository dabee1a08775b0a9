-- PgQ with a queue and a consumer. pgqd makes the ticks; the queue allows them ten times a second.
CREATE EXTENSION pgq;
SELECT pgq.create_queue('bench');
SELECT pgq.set_queue_config('bench', 'ticker_max_lag', '100 milliseconds');
SELECT pgq.set_queue_config('bench', 'ticker_idle_period', '1 second');
SELECT pgq.register_consumer('bench', 'relay');
CREATE TABLE processed_messages (
	id text PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);
