-- The outbox of NServiceBus, as its SQL persistence has it: one row is the record of the incoming
-- message and holds the outgoing ones, until they are dispatched.
CREATE TABLE outbox_data (
	message_id varchar(200) PRIMARY KEY,
	dispatched boolean NOT NULL DEFAULT false,
	dispatched_at timestamp,
	persistence_version varchar(23) NOT NULL,
	operations jsonb NOT NULL
);
CREATE INDEX ON outbox_data (dispatched_at) WHERE dispatched;
