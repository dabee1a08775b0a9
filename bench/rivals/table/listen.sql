-- The same with a trigger that wakes the relay.
CREATE FUNCTION wake_relay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('outgoing_messages', '');
	RETURN NULL;
END
$$;
CREATE TRIGGER wake_relay AFTER INSERT ON outgoing_messages
	FOR EACH STATEMENT EXECUTE FUNCTION wake_relay();
