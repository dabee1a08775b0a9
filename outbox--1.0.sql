/* outbox--1.0.sql */

\echo Use "CREATE EXTENSION outbox" to load this file. \quit

-- Everything below means PostgreSQL's own operators and functions, whatever
-- others have put into the schema that the extension is created in.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- src/table/row_write.c inserts by heap_insert().
SELECT pg_catalog.set_config('default_table_access_method', 'heap', true);

--
-- The schema of the tables and views. Functions live in the schema that CREATE
-- EXTENSION was given, which may be this one.
--
DO $$
BEGIN
	-- With quote_all_identifiers it comes in quotes.
	IF '@extschema@' NOT IN ('outbox', '"outbox"') THEN
		CREATE SCHEMA outbox;
		COMMENT ON SCHEMA outbox IS 'tables and views of the extension outbox';
	ELSIF EXISTS (
		SELECT FROM pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
			LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE n.nspname = 'outbox' AND a.privilege_type = 'CREATE'
			AND NOT coalesce(r.rolsuper OR r.rolname = current_user, false))
	THEN
		RAISE EXCEPTION 'schema "outbox" must not be open to others' USING
			ERRCODE = 'object_not_in_prerequisite_state',
			DETAIL = 'A role that is not a superuser owns it or may create objects in it.  Such a role could drop tables of the extension, or replace them with its own.',
			HINT = 'Use ALTER SCHEMA outbox OWNER TO and REVOKE CREATE ON SCHEMA outbox, or another schema.';
	END IF;
END
$$;

--
-- Tables. src/table/relations.c finds them by these names; nothing else repeats them.
--
-- Text that an index has is in the order of its bytes. That of a locale changes with
-- the C library or ICU, and an index that was made before does not find its rows then:
-- a destination would be paused in one row, and resumed in another.
--
CREATE TABLE outbox.instance (
	id uuid PRIMARY KEY,
	database oid NOT NULL,
	first_window bigint NOT NULL,
	publisher text,
	layout_epoch bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE outbox.instance IS 'identity of this outbox; one row. Every transaction that uses the outbox locks this table first';
COMMENT ON COLUMN outbox.instance.id IS 'part of the names of the keys in Redis';
COMMENT ON COLUMN outbox.instance.database IS 'OID of the database that the id was made for; if it is not this one, this is a copy';

COMMENT ON COLUMN outbox.instance.publisher IS 'data directory whose dispatcher published last; NULL: none has yet';
COMMENT ON COLUMN outbox.instance.layout_epoch IS 'epoch of the last layout of partitions that Redis may have been told; 0: none';
COMMENT ON COLUMN outbox.instance.first_window IS 'nothing in this window or an earlier one is ever sent again';

INSERT INTO outbox.instance
	SELECT gen_random_uuid(), d.oid, 0, NULL
	FROM pg_database d
	WHERE d.datname = current_database();

CREATE TABLE outbox.loss (
	lost_before timestamptz PRIMARY KEY,
	noted_at timestamptz NOT NULL
);
COMMENT ON TABLE outbox.loss IS 'messages that Redis has lost and that are no longer in the log, until outbox_acknowledge_loss()';
COMMENT ON COLUMN outbox.loss.lost_before IS 'some of the messages enqueued before this may be missing';
COMMENT ON COLUMN outbox.loss.noted_at IS 'when the dispatcher noticed the loss';

CREATE TABLE outbox.era (
	id text COLLATE "C" PRIMARY KEY,
	went_on_after bigint
);
COMMENT ON TABLE outbox.era IS 'eras of publishing: one ends when another server takes over, or when the database has gone back in time';
COMMENT ON COLUMN outbox.era.id IS 'part of the fences in Redis that were set in it';
COMMENT ON COLUMN outbox.era.went_on_after IS 'window after which sending went on when the era ended; NULL: the era has not ended';

CREATE TABLE outbox.lane (
	slot integer PRIMARY KEY CHECK (slot BETWEEN 0 AND 16383)
);
COMMENT ON TABLE outbox.lane IS 'hash slots of a Redis Cluster that messages were sent to; each has a fence of its own';
COMMENT ON COLUMN outbox.lane.slot IS 'hash slot';

CREATE TABLE outbox.mapping (
	dest text COLLATE "C" NOT NULL,
	after_window bigint NOT NULL,
	stream text,
	partitions integer NOT NULL,
	PRIMARY KEY (dest, after_window)
);
COMMENT ON TABLE outbox.mapping IS 'which stream of a Redis Cluster the messages of a destination were sent to, by the window that they are in';
COMMENT ON COLUMN outbox.mapping.dest IS 'destination';
COMMENT ON COLUMN outbox.mapping.after_window IS 'the row applies to windows after this one, up to that of the next row';
COMMENT ON COLUMN outbox.mapping.stream IS 'key of its stream; NULL: the name of the destination';
COMMENT ON COLUMN outbox.mapping.partitions IS 'over how many streams its messages were spread; 0: one, without a number';

CREATE TABLE outbox.ring (
	ring text COLLATE "C" NOT NULL CHECK (ring = ANY (ARRAY['log', 'record', 'history'])),
	segment integer NOT NULL,
	state text NOT NULL CHECK (state = ANY (ARRAY['empty', 'current', 'sealed', 'filling', 'quiet', 'retired'])),
	generation bigint NOT NULL,
	since timestamptz NOT NULL,
	tx xid8 NOT NULL,
	published_at timestamptz,
	compacted_into integer,
	level integer NOT NULL DEFAULT 0,
	keys bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (ring, segment)
);
COMMENT ON TABLE outbox.ring IS 'state of each segment of the rings of tables';
COMMENT ON COLUMN outbox.ring.ring IS 'log, record, or history (records that were compacted)';
COMMENT ON COLUMN outbox.ring.segment IS 'number of the segment: its tables are log_N and window_N, record_N, or history_N';
COMMENT ON COLUMN outbox.ring.state IS 'current (written), sealed (another became current), filling (history: not read yet), quiet (no writer is left), retired (readers skip it), empty';
COMMENT ON COLUMN outbox.ring.generation IS 'generation of the last change of this row; it increases with every change of any segment';
COMMENT ON COLUMN outbox.ring.since IS 'when the segment entered this state';
COMMENT ON COLUMN outbox.ring.tx IS 'transaction that changed its state';
COMMENT ON COLUMN outbox.ring.published_at IS 'when a quiet segment was first seen with all its messages in Redis';
COMMENT ON COLUMN outbox.ring.compacted_into IS 'history segment that the keys of this one are copied into; NULL: none';
COMMENT ON COLUMN outbox.ring.level IS 'history: how many times its keys were merged';
COMMENT ON COLUMN outbox.ring.keys IS 'history: how many keys it holds';

CREATE TABLE outbox.compacted (
	segment integer NOT NULL,
	endpoint text,
	records bigint NOT NULL
);
-- DELETE needs it where a publication of all tables includes this one.
ALTER TABLE outbox.compacted REPLICA IDENTITY FULL;
COMMENT ON TABLE outbox.compacted IS 'how many records of each endpoint were compacted into a segment of the history';
COMMENT ON COLUMN outbox.compacted.segment IS 'segment of the history';
COMMENT ON COLUMN outbox.compacted.endpoint IS 'endpoint; NULL: not known, because they were compacted when they were dumped';
COMMENT ON COLUMN outbox.compacted.records IS 'how many records';

CREATE TABLE outbox.forgotten (
	key uuid NOT NULL,
	forgotten_at timestamptz NOT NULL
) USING heap;
-- Not unique: a restore must not fail because an id is forgotten here, too.
CREATE INDEX forgotten_key_idx ON outbox.forgotten (key);
ALTER TABLE outbox.forgotten REPLICA IDENTITY FULL;
COMMENT ON TABLE outbox.forgotten IS 'tombstones: ids that outbox_forget() has forgotten and that were not claimed since; their records do not count';
COMMENT ON COLUMN outbox.forgotten.key IS 'hash of endpoint and msgid';
COMMENT ON COLUMN outbox.forgotten.forgotten_at IS 'when it was forgotten';

CREATE TABLE outbox.endpoint (
	name text COLLATE "C" PRIMARY KEY,
	concurrency text,
	retention interval,
	record_table regclass UNIQUE,
	record_columns jsonb,
	dedup_store text,
	store_retention interval
);
COMMENT ON TABLE outbox.endpoint IS 'settings of endpoints; endpoint "default" exists without a row';
COMMENT ON COLUMN outbox.endpoint.name IS 'logical receiver; message ids are deduplicated per endpoint';
COMMENT ON COLUMN outbox.endpoint.concurrency IS 'optimistic or pessimistic; NULL: outbox.concurrency';
COMMENT ON COLUMN outbox.endpoint.retention IS 'how long a record outlives its dispatch; NULL: outbox.retention';
COMMENT ON COLUMN outbox.endpoint.record_table IS 'custom record table that holds the records; NULL: the tables of the extension';
COMMENT ON COLUMN outbox.endpoint.record_columns IS 'names of its columns for message_id, dispatched and dispatched_at';
COMMENT ON COLUMN outbox.endpoint.dedup_store IS 'URL of the deduplication store that remembers message ids; NULL: none';
COMMENT ON COLUMN outbox.endpoint.store_retention IS 'how long that store keeps ids; NULL: the retention';

CREATE TABLE outbox.deferred (
	id bigint PRIMARY KEY,
	key uuid,
	message_id text COLLATE "C" NOT NULL,
	dest text COLLATE "C" NOT NULL,
	cause text,
	enqueued_at timestamptz NOT NULL,
	headers jsonb,
	body bytea,
	log_segment integer,
	state text NOT NULL CHECK (state = ANY (ARRAY['scheduled', 'waiting', 'held', 'dead', 'returned', 'discarded'])),
	returned_tx xid8,
	attempts integer NOT NULL,
	next_attempt timestamptz NOT NULL,
	last_error text,
	first_attempt timestamptz,
	last_attempt timestamptz,
	log_tx xid8,
	partition_key text,
	stream text
);
CREATE INDEX deferred_waiting_idx ON outbox.deferred (dest, id) WHERE state = 'waiting';
CREATE INDEX deferred_held_idx ON outbox.deferred (dest, id) WHERE state = 'held';
CREATE INDEX deferred_key_idx ON outbox.deferred (key);
CREATE INDEX deferred_scheduled_idx ON outbox.deferred (next_attempt) WHERE state = 'scheduled';
CREATE INDEX deferred_dead_idx ON outbox.deferred (dest, message_id) WHERE state = 'dead';
CREATE INDEX deferred_tombstone_idx ON outbox.deferred (log_segment) WHERE state IN ('returned', 'discarded');
CREATE INDEX deferred_unread_idx ON outbox.deferred (log_segment) WHERE log_tx IS NOT NULL;
COMMENT ON TABLE outbox.deferred IS 'messages that cannot be sent now: scheduled for later, refused by their destination, behind one of these, or dead';
COMMENT ON COLUMN outbox.deferred.id IS 'id that the message has in the log';
COMMENT ON COLUMN outbox.deferred.key IS 'record that the message belongs to';
COMMENT ON COLUMN outbox.deferred.message_id IS 'id that consumers see';
COMMENT ON COLUMN outbox.deferred.dest IS 'destination';
COMMENT ON COLUMN outbox.deferred.cause IS 'incoming message that caused this one';
COMMENT ON COLUMN outbox.deferred.enqueued_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox.deferred.headers IS 'headers';
COMMENT ON COLUMN outbox.deferred.body IS 'body; NULL: it could not be read yet, nor could the headers';
COMMENT ON COLUMN outbox.deferred.log_segment IS 'log segment of the row that was deferred last; when that is emptied, a returned or discarded row is deleted too';
COMMENT ON COLUMN outbox.deferred.state IS 'scheduled, waiting for its next attempt, held back by a dead message of its key, dead (given up), returned to the log, or discarded by an administrator';
COMMENT ON COLUMN outbox.deferred.returned_tx IS 'transaction that returned it: that row of the log counts, the original does not';
COMMENT ON COLUMN outbox.deferred.attempts IS 'attempts of its own; 0 for a message that only waits behind another';
COMMENT ON COLUMN outbox.deferred.next_attempt IS 'when it is tried next; of a scheduled message: when it is due';
COMMENT ON COLUMN outbox.deferred.last_error IS 'what Redis answered to the last attempt';
COMMENT ON COLUMN outbox.deferred.first_attempt IS 'first attempt';
COMMENT ON COLUMN outbox.deferred.last_attempt IS 'last attempt';
COMMENT ON COLUMN outbox.deferred.log_tx IS 'transaction of the row of the log that has the body, if that is still to be read from there';
COMMENT ON COLUMN outbox.deferred.partition_key IS 'key whose messages stay in order; NULL: none was given';
COMMENT ON COLUMN outbox.deferred.stream IS 'stream that it goes back to because a Redis Cluster has lost it there; NULL: where messages for its destination go when it is sent';

CREATE TABLE outbox.destination (
	dest text COLLATE "C" PRIMARY KEY,
	stream text,
	maxlen integer,
	paused boolean NOT NULL DEFAULT false,
	format text CHECK (format = ANY (ARRAY['plain', 'cloudevents'])),
	partitions integer CHECK (partitions BETWEEN 0 AND 4096),
	on_dead text CHECK (on_dead = ANY (ARRAY['pass', 'hold']))
);
COMMENT ON TABLE outbox.destination IS 'settings of destinations that have any; dest '''' stands for all of them';
COMMENT ON COLUMN outbox.destination.dest IS 'destination';
COMMENT ON COLUMN outbox.destination.stream IS 'key of its stream in Redis; NULL: the name of the destination';
COMMENT ON COLUMN outbox.destination.maxlen IS 'approximate length to which the stream is trimmed; NULL: outbox.stream_maxlen';
COMMENT ON COLUMN outbox.destination.paused IS 'whether outbox_pause() holds its messages';
COMMENT ON COLUMN outbox.destination.format IS 'form of its entries: plain or cloudevents; NULL: plain';
COMMENT ON COLUMN outbox.destination.partitions IS 'how many streams its messages are spread over; NULL: one, with the name of the stream; 0: the same, and it had partitions before';
COMMENT ON COLUMN outbox.destination.on_dead IS 'pass: later messages overtake a dead one; hold: a dead message holds back the later ones of its key, or those without a key if it has none; NULL: pass';

CREATE SEQUENCE outbox.log_id_seq CACHE 1;
COMMENT ON SEQUENCE outbox.log_id_seq IS 'ids of messages and receipts in the log, in the order of the calls';

--
-- The rings. No row of a segment is ever updated or deleted: TRUNCATE gives the
-- space back, so vacuum has nothing to do here.
--
DO $$
DECLARE
	log_segments CONSTANT integer := 4;
	record_segments CONSTANT integer := 12;
	history_segments CONSTANT integer := 24;
	no_vacuum CONSTANT text := 'WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false)';
BEGIN
	-- Columns of the log that are often NULL stand last: there they take no space.
	FOR n IN 0 .. log_segments - 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE outbox.log_%1$s (
				id bigint NOT NULL,
				tx xid8 NOT NULL,
				enqueued_at timestamptz NOT NULL,
				database oid NOT NULL,
				message_uuid uuid,
				dest text,
				body bytea,
				cause text,
				key uuid,
				headers jsonb,
				message_id text,
				deliver_at timestamptz,
				partition_key text,
				stream text,
				endpoint text,
				msgid text,
				CHECK (CASE WHEN dest IS NULL
					THEN num_nonnulls(key, msgid) = 2
						AND num_nonnulls(message_uuid, message_id, body, cause, headers, deliver_at, partition_key, stream) = 0
					ELSE num_nonnulls(message_uuid, message_id) = 1 AND body IS NOT NULL
						AND num_nonnulls(endpoint, msgid) = 0
				END)
			) %2$s;
			CREATE INDEX log_%1$s_tx_idx ON outbox.log_%1$s (tx);
			COMMENT ON TABLE outbox.log_%1$s IS 'log of messages and receipts, segment %1$s; a receipt says that an endpoint has processed an incoming message';
			COMMENT ON COLUMN outbox.log_%1$s.id IS 'order of the calls';
			COMMENT ON COLUMN outbox.log_%1$s.tx IS 'top-level transaction that wrote it';
			COMMENT ON COLUMN outbox.log_%1$s.enqueued_at IS 'when the message was enqueued or the receipt written';
			COMMENT ON COLUMN outbox.log_%1$s.database IS 'database that it was written in; a copy made with TEMPLATE leaves what was written in its original to the original';
			COMMENT ON COLUMN outbox.log_%1$s.message_uuid IS 'id that consumers see, if it is a UUID in its usual form; NULL: message_id, or a receipt';
			COMMENT ON COLUMN outbox.log_%1$s.dest IS 'destination; NULL: this is a receipt';
			COMMENT ON COLUMN outbox.log_%1$s.body IS 'body; UTF-8 where it was given as text; NULL: this is a receipt';
			COMMENT ON COLUMN outbox.log_%1$s.cause IS 'incoming message that caused this message; NULL: none';
			COMMENT ON COLUMN outbox.log_%1$s.key IS 'key of the record that it belongs to; NULL: that of the default endpoint and cause, none without a cause; all bits 0: none';
			COMMENT ON COLUMN outbox.log_%1$s.headers IS 'headers, a flat object';
			COMMENT ON COLUMN outbox.log_%1$s.message_id IS 'id that consumers see; NULL: message_uuid, or a receipt';
			COMMENT ON COLUMN outbox.log_%1$s.deliver_at IS 'when it is to be sent; NULL: at once';
			COMMENT ON COLUMN outbox.log_%1$s.partition_key IS 'key whose messages stay in order; NULL: none was given';
			COMMENT ON COLUMN outbox.log_%1$s.stream IS 'of a message that was deferred: stream that it goes back to because a Redis Cluster has lost it there; NULL: where messages for its destination go';
			COMMENT ON COLUMN outbox.log_%1$s.endpoint IS 'of a receipt: endpoint that has processed the incoming message; NULL: the one that key was made for';
			COMMENT ON COLUMN outbox.log_%1$s.msgid IS 'of a receipt: id of the incoming message that was processed';

			CREATE TABLE outbox.window_%1$s (
				number bigint PRIMARY KEY,
				uuid uuid NOT NULL,
				tx xid8 NOT NULL,
				snapshot pg_snapshot NOT NULL,
				opened_at timestamptz NOT NULL,
				published bigint NOT NULL,
				propagated bigint NOT NULL,
				targets bigint NOT NULL,
				messages bigint NOT NULL,
				oldest timestamptz
			) %2$s;
			COMMENT ON TABLE outbox.window_%1$s IS 'windows opened while log segment %1$s was current; the first one repeats the last of the segment before';
			COMMENT ON COLUMN outbox.window_%1$s.number IS 'counts the windows';
			COMMENT ON COLUMN outbox.window_%1$s.uuid IS 'distinguishes this window from one of the same number in another history of this database';
			COMMENT ON COLUMN outbox.window_%1$s.tx IS 'transaction that opened it';
			COMMENT ON COLUMN outbox.window_%1$s.snapshot IS 'where it ends; it begins where the window before ends';
			COMMENT ON COLUMN outbox.window_%1$s.opened_at IS 'when it was opened';
			COMMENT ON COLUMN outbox.window_%1$s.published IS 'newest window known to be in Redis when this row was written';
			COMMENT ON COLUMN outbox.window_%1$s.propagated IS 'newest window known to have had its receipts propagated when this row was written';
			COMMENT ON COLUMN outbox.window_%1$s.targets IS 'hash of what endpoints had deduplication stores and custom record tables then, to which they were propagated';
			COMMENT ON COLUMN outbox.window_%1$s.messages IS 'messages in all windows up to the end of this one';
			COMMENT ON COLUMN outbox.window_%1$s.oldest IS 'when its oldest message or receipt was enqueued';
		$sql$, n, no_vacuum);
	END LOOP;

	FOR n IN 0 .. record_segments - 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE outbox.record_%1$s (
				key uuid PRIMARY KEY,
				tx xid8 NOT NULL,
				endpoint text,
				msgid text
			) %2$s;
			COMMENT ON TABLE outbox.record_%1$s IS 'records of processed messages, segment %1$s';
			COMMENT ON COLUMN outbox.record_%1$s.key IS 'hash of endpoint and msgid';
			COMMENT ON COLUMN outbox.record_%1$s.tx IS 'top-level transaction that claimed it; 0: not known, because it was restored, or comes from a database that uses this one as its store';
			COMMENT ON COLUMN outbox.record_%1$s.endpoint IS 'endpoint that processed the message; NULL: the default one, or not known where msgid is NULL, too';
			COMMENT ON COLUMN outbox.record_%1$s.msgid IS 'id of the incoming message; NULL: not known, because it was compacted when it was dumped';
		$sql$, n, no_vacuum);
	END LOOP;

	FOR n IN 0 .. history_segments - 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE outbox.history_%1$s (
				first_key uuid PRIMARY KEY,
				keys bytea NOT NULL
			) %2$s;
			ALTER TABLE outbox.history_%1$s ALTER keys SET STORAGE PLAIN;
			COMMENT ON TABLE outbox.history_%1$s IS 'records that were compacted, segment %1$s';
			COMMENT ON COLUMN outbox.history_%1$s.first_key IS 'first of the keys in this row';
			COMMENT ON COLUMN outbox.history_%1$s.keys IS 'keys of records, 16 bytes each, in ascending order';
		$sql$, n, no_vacuum);
	END LOOP;

	INSERT INTO outbox.ring (ring, segment, state, generation, since, tx)
		SELECT r.ring, s.segment, CASE WHEN s.segment = 0 AND r.ring <> 'history' THEN 'current' ELSE 'empty' END, 1,
			now(), pg_current_xact_id()
		FROM (VALUES ('log', log_segments), ('record', record_segments), ('history', history_segments)) r (ring, segments),
			LATERAL generate_series(0, r.segments - 1) s (segment);
END
$$;

-- Window 0 ends before every transaction that can have written a message.
INSERT INTO outbox.window_0 (number, uuid, tx, snapshot, opened_at, published, propagated, targets, messages)
	VALUES (0, gen_random_uuid(), pg_current_xact_id(), '3:3:', now(), 0, 0, 0, 0);

--
-- Functions for applications
--
CREATE FUNCTION @extschema@.outbox_begin(msgid text, endpoint text DEFAULT NULL, concurrency text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_begin_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_begin(text, text, text) IS 'opens an incoming message; true: process it; false: it is a duplicate, just acknowledge it';

CREATE FUNCTION @extschema@.outbox_begin(msgid uuid, endpoint text DEFAULT NULL, concurrency text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_begin_uuid'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_begin(uuid, text, text) IS 'opens an incoming message; true: process it; false: it is a duplicate, just acknowledge it';

-- message_id may be text or uuid. It is polymorphic, because with two functions a
-- call without an id would be ambiguous; an untyped argument resolves to text.
CREATE FUNCTION @extschema@.outbox_enqueue(dest text, body text, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_enqueue_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_enqueue(text, text, jsonb, anycompatible, timestamptz, text) IS 'writes an outgoing message, sent when this transaction has committed; returns its id';

CREATE FUNCTION @extschema@.outbox_enqueue(dest text, body json, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_enqueue_json'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_enqueue(text, json, jsonb, anycompatible, timestamptz, text) IS 'writes an outgoing message, sent when this transaction has committed; returns its id';

CREATE FUNCTION @extschema@.outbox_enqueue(dest text, body jsonb, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_enqueue_jsonb'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_enqueue(text, jsonb, jsonb, anycompatible, timestamptz, text) IS 'writes an outgoing message, sent when this transaction has committed; returns its id';

CREATE FUNCTION @extschema@.outbox_enqueue(dest text, body bytea, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytea'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_enqueue(text, bytea, jsonb, anycompatible, timestamptz, text) IS 'writes an outgoing message, sent when this transaction has committed; returns its id';

-- bodies may be text[], json[], jsonb[] or bytea[]; untyped arrays resolve to text[].
CREATE FUNCTION @extschema@.outbox_enqueue_many(dest text, bodies anycompatiblearray, headers jsonb DEFAULT NULL, message_ids text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, keys text[] DEFAULT NULL)
RETURNS integer
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_enqueue_many(text, anycompatiblearray, jsonb, text[], timestamptz, text[]) IS 'writes many outgoing messages in one call, in the order of the array; returns how many';

CREATE FUNCTION @extschema@.outbox_commit()
RETURNS integer
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_commit() IS 'seals the record of the open message; returns how many messages were enqueued since outbox_begin()';

CREATE FUNCTION @extschema@.outbox_wait(msgid text, endpoint text DEFAULT NULL, timeout interval DEFAULT '30 s')
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_wait_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_wait(text, text, interval) IS 'waits until everything that an incoming message caused is in Redis; false: the time is up or a message is dead; NULL: there is no such record';

CREATE FUNCTION @extschema@.outbox_wait(msgid uuid, endpoint text DEFAULT NULL, timeout interval DEFAULT '30 s')
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_wait_uuid'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_wait(uuid, text, interval) IS 'waits until everything that an incoming message caused is in Redis; false: the time is up or a message is dead; NULL: there is no such record';

CREATE FUNCTION outbox.read_enqueued(
	OUT id bigint, OUT message_id text, OUT dest text, OUT cause text, OUT headers jsonb, OUT body bytea, OUT deliver_at timestamptz, OUT key text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_read_enqueued'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_enqueued() IS 'what outbox_enqueued() shows, in no order';

CREATE FUNCTION @extschema@.outbox_enqueued(
	OUT id bigint, OUT message_id text, OUT dest text, OUT cause text, OUT headers jsonb, OUT body bytea, OUT deliver_at timestamptz, OUT key text)
RETURNS SETOF record
AS $$ SELECT * FROM outbox.read_enqueued() ORDER BY id $$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_enqueued() IS 'messages that this transaction has enqueued so far, in the order of the calls; for tests';

CREATE FUNCTION @extschema@.outbox_send(dest text, body text, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_send_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_send(text, text, jsonb, anycompatible, text) IS 'sends a message now, outside of the transaction, and waits for Redis; returns the id of the entry';

CREATE FUNCTION @extschema@.outbox_send(dest text, body json, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_send_json'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_send(text, json, jsonb, anycompatible, text) IS 'sends a message now, outside of the transaction, and waits for Redis; returns the id of the entry';

CREATE FUNCTION @extschema@.outbox_send(dest text, body jsonb, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_send_jsonb'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_send(text, jsonb, jsonb, anycompatible, text) IS 'sends a message now, outside of the transaction, and waits for Redis; returns the id of the entry';

CREATE FUNCTION @extschema@.outbox_send(dest text, body bytea, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, key text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_send_bytea'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_send(text, bytea, jsonb, anycompatible, text) IS 'sends a message now, outside of the transaction, and waits for Redis; returns the id of the entry';

--
-- For tables of others: an outbox that exists already, and changes of any table
--
CREATE FUNCTION @extschema@.outbox_forward()
RETURNS trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;
COMMENT ON FUNCTION @extschema@.outbox_forward() IS 'trigger function for an existing outbox table: sends what is inserted';

CREATE FUNCTION @extschema@.outbox_capture()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_capture_change'
LANGUAGE C;
COMMENT ON FUNCTION @extschema@.outbox_capture() IS 'trigger function of captured tables: sends changes';

CREATE FUNCTION @extschema@.outbox_capture(relation regclass, dest text, events text[] DEFAULT '{insert,update,delete,truncate}',
	columns text[] DEFAULT NULL, key text[] DEFAULT NULL, condition text DEFAULT NULL, before boolean DEFAULT true)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_capture_table'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_capture(regclass, text, text[], text[], text[], text, boolean) IS 'creates triggers that send the changes of a table as messages';

CREATE FUNCTION @extschema@.outbox_uncapture(relation regclass)
RETURNS boolean
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_uncapture(regclass) IS 'drops the triggers of outbox_capture(); false: there was none';

--
-- The same as procedures, for frameworks that can use nothing but CALL. They have
-- names of their own, for a function and a procedure cannot share one.
--
CREATE PROCEDURE @extschema@.outbox_begin_message(msgid text, endpoint text DEFAULT NULL, concurrency text DEFAULT NULL, INOUT is_new boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_begin_message_text'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_begin_message(text, text, text, boolean) IS 'outbox_begin() for CALL; is_new is what that returns';

CREATE PROCEDURE @extschema@.outbox_begin_message(msgid uuid, endpoint text DEFAULT NULL, concurrency text DEFAULT NULL, INOUT is_new boolean DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_begin_message_uuid'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_begin_message(uuid, text, text, boolean) IS 'outbox_begin() for CALL; is_new is what that returns';

CREATE PROCEDURE @extschema@.outbox_enqueue_message(dest text, body text, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_enqueue_text'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_enqueue_message(text, text, jsonb, anycompatible, timestamptz, text) IS 'outbox_enqueue() for CALL';

CREATE PROCEDURE @extschema@.outbox_enqueue_message(dest text, body json, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_enqueue_json'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_enqueue_message(text, json, jsonb, anycompatible, timestamptz, text) IS 'outbox_enqueue() for CALL';

CREATE PROCEDURE @extschema@.outbox_enqueue_message(dest text, body jsonb, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_enqueue_jsonb'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_enqueue_message(text, jsonb, jsonb, anycompatible, timestamptz, text) IS 'outbox_enqueue() for CALL';

CREATE PROCEDURE @extschema@.outbox_enqueue_message(dest text, body bytea, headers jsonb DEFAULT NULL, message_id anycompatible DEFAULT NULL::text, deliver_at timestamptz DEFAULT NULL, key text DEFAULT NULL)
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytea'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_enqueue_message(text, bytea, jsonb, anycompatible, timestamptz, text) IS 'outbox_enqueue() for CALL';

CREATE PROCEDURE @extschema@.outbox_commit_message()
AS 'MODULE_PATHNAME', 'outbox_commit'
LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.outbox_commit_message() IS 'outbox_commit() for CALL';

--
-- Functions for administrators
--
CREATE FUNCTION @extschema@.outbox_create_endpoint(name text, concurrency text DEFAULT NULL, retention interval DEFAULT NULL,
	record_table regclass DEFAULT NULL, record_columns jsonb DEFAULT NULL, dedup_store text DEFAULT NULL,
	store_retention interval DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_create_endpoint(text, text, interval, regclass, jsonb, text, interval) IS 'creates an endpoint; an argument that is NULL stands for its default: the setting of the same name, or the tables of the extension';

CREATE FUNCTION @extschema@.outbox_alter_endpoint(name text, concurrency text DEFAULT NULL, retention interval DEFAULT NULL,
	record_table regclass DEFAULT NULL, record_columns jsonb DEFAULT NULL, dedup_store text DEFAULT NULL,
	store_retention interval DEFAULT NULL, reset text[] DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_alter_endpoint(text, text, interval, regclass, jsonb, text, interval, text[]) IS 'changes settings of an endpoint: what is NULL stays as it is, what reset names returns to its default';

CREATE FUNCTION @extschema@.outbox_drop_endpoint(name text, force boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_drop_endpoint(text, boolean) IS 'drops an endpoint if all its messages are sent, or if force is true; its records live on until they expire';

CREATE FUNCTION @extschema@.outbox_forget(msgid text, endpoint text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_forget_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_forget(text, text) IS 'makes a processed message count as new; false: it was not known';

CREATE FUNCTION @extschema@.outbox_forget(msgid uuid, endpoint text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_forget_uuid'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_forget(uuid, text) IS 'makes a processed message count as new; false: it was not known';

CREATE FUNCTION @extschema@.outbox_cleanup()
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_cleanup() IS 'asks the dispatcher for a round of expiry and waits for it; returns how many records were removed';

CREATE FUNCTION outbox.check_dest(dest text)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_check_dest'
LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION outbox.check_dest(text) IS 'refuses what cannot be the name of a destination';

CREATE FUNCTION @extschema@.outbox_set_destination(dest text, stream text DEFAULT NULL, maxlen integer DEFAULT NULL, format text DEFAULT NULL,
	partitions integer DEFAULT NULL, on_dead text DEFAULT NULL, reset text[] DEFAULT NULL)
RETURNS void
AS $$
DECLARE
	settings CONSTANT text[] := '{stream,maxlen,format,partitions,on_dead}';
	given CONSTANT boolean[] := ARRAY[stream IS NOT NULL, maxlen IS NOT NULL, format IS NOT NULL, partitions IS NOT NULL, on_dead IS NOT NULL];
	defaults CONSTANT text[] := coalesce(reset, '{}');
	setting text;
BEGIN
	PERFORM outbox.check_dest(dest);
	IF stream IS NOT NULL THEN
		PERFORM outbox.check_dest(stream);
	END IF;
	IF maxlen < 0 THEN
		RAISE EXCEPTION 'maxlen must not be negative' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Use 0 to never trim the stream.';
	END IF;
	IF format <> ALL ('{plain,cloudevents}') THEN
		RAISE EXCEPTION 'invalid format: "%"', format USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Use "plain" or "cloudevents".';
	END IF;
	IF partitions NOT BETWEEN 1 AND 4096 THEN
		RAISE EXCEPTION 'partitions must be between 1 and 4096' USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Use reset => ''{partitions}'' for a destination that is to have none.';
	END IF;
	IF on_dead <> ALL ('{pass,hold}') THEN
		RAISE EXCEPTION 'invalid on_dead: "%"', on_dead USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Use "pass" or "hold".';
	END IF;
	FOREACH setting IN ARRAY defaults LOOP
		IF setting IS NULL OR setting <> ALL (settings) THEN
			RAISE EXCEPTION 'invalid setting in reset: "%"', coalesce(setting, '') USING ERRCODE = 'invalid_parameter_value',
				HINT = 'The settings of a destination are stream, maxlen, format, partitions and on_dead.';
		END IF;
		IF given[array_position(settings, setting)] THEN
			RAISE EXCEPTION '% is both set and reset', setting USING ERRCODE = 'invalid_parameter_value';
		END IF;
	END LOOP;
	INSERT INTO outbox.destination AS d (dest, stream, maxlen, format, partitions, on_dead) VALUES (dest, stream, maxlen, format, partitions, on_dead)
		ON CONFLICT ON CONSTRAINT destination_pkey DO UPDATE
		SET stream = coalesce(excluded.stream, CASE WHEN 'stream' <> ALL (defaults) THEN d.stream END),
			maxlen = coalesce(excluded.maxlen, CASE WHEN 'maxlen' <> ALL (defaults) THEN d.maxlen END),
			format = coalesce(excluded.format, CASE WHEN 'format' <> ALL (defaults) THEN d.format END),
			partitions = coalesce(excluded.partitions, CASE WHEN 'partitions' <> ALL (defaults) THEN d.partitions ELSE d.partitions * 0 END),
			on_dead = coalesce(excluded.on_dead, CASE WHEN 'on_dead' <> ALL (defaults) THEN d.on_dead END);
END
$$
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_set_destination(text, text, integer, text, integer, text, text[]) IS 'sets the stream and the length of a destination, the form of its entries, how many streams they are spread over, and whether a dead message holds back others: what is NULL stays as it is, what reset names returns to its default';

CREATE FUNCTION outbox.set_paused(dest text, paused boolean)
RETURNS void
AS $$
BEGIN
	IF dest IS NOT NULL THEN
		PERFORM outbox.check_dest(dest);
	END IF;
	IF paused THEN
		INSERT INTO outbox.destination AS d (dest, paused) VALUES (coalesce(dest, ''), true)
			ON CONFLICT ON CONSTRAINT destination_pkey DO UPDATE SET paused = true;
		RETURN;
	END IF;
	UPDATE outbox.destination d SET paused = false WHERE d.dest = coalesce(set_paused.dest, '') COLLATE "C" AND d.paused;
	IF FOUND THEN
		RETURN;
	END IF;
	-- A pause that is younger than the snapshot is not seen: then this fails, as outbox_pause() does.
	IF current_setting('transaction_isolation') = ANY ('{repeatable read,serializable}') THEN
		INSERT INTO outbox.destination AS d (dest) VALUES (coalesce(dest, '')) ON CONFLICT ON CONSTRAINT destination_pkey DO NOTHING;
		IF FOUND THEN
			DELETE FROM outbox.destination d WHERE d.dest = coalesce(set_paused.dest, '') COLLATE "C";
		END IF;
	END IF;
	IF dest IS NULL THEN
		RAISE NOTICE 'outbox_pause() without a destination is not in effect';
	ELSE
		RAISE NOTICE 'destination "%" is not paused', dest;
	END IF;
END
$$
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION outbox.set_paused(text, boolean) IS 'notes whether messages are sent to a destination; NULL: to any';

CREATE FUNCTION @extschema@.outbox_pause(dest text DEFAULT NULL)
RETURNS void
AS $$ SELECT outbox.set_paused(dest, true) $$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_pause(text) IS 'stops sending to a destination, or to all, until outbox_resume()';

CREATE FUNCTION @extschema@.outbox_resume(dest text DEFAULT NULL)
RETURNS void
AS $$ SELECT outbox.set_paused(dest, false) $$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_resume(text) IS 'ends what outbox_pause() with the same argument began';

CREATE FUNCTION @extschema@.outbox_retry(dest text DEFAULT NULL, message_id text DEFAULT NULL)
RETURNS bigint
AS $$
	WITH retried AS (
		UPDATE outbox.deferred d SET state = 'waiting', attempts = 0, next_attempt = clock_timestamp()
		WHERE d.state = 'dead' AND (d.body IS NOT NULL OR d.log_tx IS NOT NULL) AND (outbox_retry.dest IS NULL OR d.dest = outbox_retry.dest COLLATE "C")
			AND (outbox_retry.message_id IS NULL OR d.message_id = outbox_retry.message_id COLLATE "C")
		RETURNING d.id)
	SELECT count(*) FROM retried
$$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_retry(text, text) IS 'tries dead messages again (NULL: of all destinations, with any id); returns how many';

CREATE FUNCTION @extschema@.outbox_retry(dest text, message_id uuid)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
RETURN @extschema@.outbox_retry(dest, message_id::text);
COMMENT ON FUNCTION @extschema@.outbox_retry(text, uuid) IS 'tries dead messages of that id again; returns how many';

CREATE FUNCTION @extschema@.outbox_retry(message_id uuid)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
RETURN @extschema@.outbox_retry(NULL, message_id::text);
COMMENT ON FUNCTION @extschema@.outbox_retry(uuid) IS 'tries dead messages of that id again; returns how many';

CREATE FUNCTION @extschema@.outbox_discard(dest text, message_id text)
RETURNS bigint
AS $$
DECLARE
	discarded bigint;
BEGIN
	PERFORM outbox.check_dest(dest);
	IF message_id IS NULL THEN
		RAISE EXCEPTION 'message_id must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	UPDATE outbox.deferred d SET state = 'discarded'
		WHERE d.state = 'dead' AND d.dest = outbox_discard.dest COLLATE "C" AND d.message_id = outbox_discard.message_id COLLATE "C";
	GET DIAGNOSTICS discarded = ROW_COUNT;
	RETURN discarded;
END
$$
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_discard(text, text) IS 'gives up the dead messages with that id for good; returns how many there were';

CREATE FUNCTION @extschema@.outbox_discard(dest text, message_id uuid)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
RETURN @extschema@.outbox_discard(dest, message_id::text);
COMMENT ON FUNCTION @extschema@.outbox_discard(text, uuid) IS 'gives up the dead messages with that id for good; returns how many there were';

CREATE FUNCTION @extschema@.outbox_acknowledge_loss()
RETURNS timestamptz
AS $$
	WITH acknowledged AS (DELETE FROM outbox.loss RETURNING lost_before)
	SELECT max(lost_before) FROM acknowledged
$$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_acknowledge_loss() IS 'ends the problem that Redis has lost messages; returns the time before which they were enqueued, NULL if there was no such problem';

CREATE FUNCTION @extschema@.outbox_replay(since timestamptz, dest text DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.outbox_replay(timestamptz, text) IS 'sends again, with the same ids, what the log retains; returns how many messages';

--
-- Internal functions
--
CREATE FUNCTION outbox.redirect_restored()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_redirect_restored'
LANGUAGE C;
COMMENT ON FUNCTION outbox.redirect_restored() IS 'sends a message or record that comes by SQL, as from a restored dump, into the current segment';

CREATE FUNCTION outbox.refuse_replicated()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_refuse_replicated'
LANGUAGE C;
COMMENT ON FUNCTION outbox.refuse_replicated() IS 'prevents logical replication from applying internal rows of another outbox here';

CREATE FUNCTION outbox.endpoint_changed()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_endpoint_changed'
LANGUAGE C;
COMMENT ON FUNCTION outbox.endpoint_changed() IS 'makes every session read the settings of endpoints again';

CREATE FUNCTION outbox.check_endpoint()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_check_endpoint'
LANGUAGE C;
COMMENT ON FUNCTION outbox.check_endpoint() IS 'refuses a deduplication store or a record table that the role which writes the row may not name';

CREATE FUNCTION outbox.delivery_changed()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_delivery_changed'
LANGUAGE C;
COMMENT ON FUNCTION outbox.delivery_changed() IS 'makes the dispatcher read settings of destinations and deferred messages again';

CREATE FUNCTION outbox.discarded()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_discarded'
LANGUAGE C;
COMMENT ON FUNCTION outbox.discarded() IS 'causes the record of a message that is given up for good to be marked as dispatched';

-- STABLE, so that it is called once for a statement, even if there is no row.
CREATE FUNCTION outbox.dump_is_complete()
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_dump_is_complete'
LANGUAGE C STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION outbox.dump_is_complete() IS 'raises an error if the dump would lack records or deferred messages because tables were emptied after its snapshot was taken; pg_dump calls it when it has its locks';

CREATE FUNCTION outbox.is_pending(tx xid8)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_is_pending'
LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.is_pending(xid8) IS 'whether messages of that transaction are not yet known to be in Redis; pg_dump takes these';

CREATE FUNCTION outbox.is_to_propagate(tx xid8)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_is_to_propagate'
LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.is_to_propagate(xid8) IS 'whether receipts of that transaction are not yet known to have been propagated; pg_dump takes these';

CREATE FUNCTION outbox.wake_launcher()
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_wake_launcher'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.wake_launcher() IS 'at commit, makes the launcher look into this database';

CREATE FUNCTION outbox.read_status(
	OUT dispatcher_pid integer, OUT dispatcher_state text,
	OUT redis_state text, OUT redis_error text,
	OUT pending bigint, OUT oldest_pending interval, OUT sent bigint, OUT duplicates bigint,
	OUT deferred bigint, OUT scheduled bigint, OUT dead bigint, OUT windows bigint, OUT log_size bigint, OUT last_cleanup timestamptz, OUT problem text)
AS 'MODULE_PATHNAME', 'outbox_read_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_status() IS 'what the view outbox.status shows';

CREATE FUNCTION outbox.read_problems(OUT kind text, OUT severity text, OUT problem text, OUT since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_read_problems'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_problems() IS 'what the view outbox.problems shows';

CREATE FUNCTION outbox.read_pending(
	OUT id bigint, OUT message_id text, OUT dest text, OUT enqueued_at timestamptz,
	OUT cause text, OUT headers jsonb, OUT body_size integer, OUT state text,
	OUT attempts integer, OUT next_attempt timestamptz, OUT last_error text, OUT key text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_read_pending'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_pending() IS 'what the view outbox.pending shows';

CREATE FUNCTION outbox.read_records(OUT endpoint text, OUT msgid text, OUT tx xid8, OUT segment integer, OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_read_records'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_records() IS 'what the view outbox.records shows';

CREATE FUNCTION outbox.read_endpoints(
	OUT name text, OUT concurrency text, OUT retention interval, OUT store_retention interval,
	OUT records bigint, OUT duplicates bigint, OUT oldest_since timestamptz, OUT size bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_read_endpoints'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.read_endpoints() IS 'what the view outbox.endpoints shows';

CREATE FUNCTION outbox.check_store(url text)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_check_store'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.check_store(text) IS 'raises an error if the URL is not one of a deduplication store, or the caller may not name one';

CREATE FUNCTION outbox.mask_store(url text)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_mask_store'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION outbox.mask_store(text) IS 'the URL of a deduplication store without passwords';

--
-- What this database does as the deduplication store of others
--
CREATE FUNCTION outbox.store_contains(key uuid)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_store_contains'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.store_contains(uuid) IS 'whether the id of this hash is remembered here; for servers that have this database as their store';

CREATE FUNCTION outbox.store_add(keys uuid[])
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_store_add'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.store_add(uuid[]) IS 'remembers ids by their hashes; for servers that have this database as their store';

CREATE FUNCTION outbox.store_remove(key uuid)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_store_remove'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.store_remove(uuid) IS 'forgets the id of this hash; for servers that have this database as their store';

CREATE FUNCTION outbox.store_retention()
RETURNS bigint
AS 'MODULE_PATHNAME', 'outbox_store_retention'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION outbox.store_retention() IS 'how long ids are remembered here, in microseconds; for servers that have this database as their store';

--
-- Views
--
CREATE VIEW outbox.status AS SELECT * FROM outbox.read_status();
COMMENT ON VIEW outbox.status IS 'state of the outbox of this database: one row';
COMMENT ON COLUMN outbox.status.dispatcher_pid IS 'process that publishes; NULL: none runs';
COMMENT ON COLUMN outbox.status.dispatcher_state IS 'starting, idle, publishing, waiting for Redis, waiting for the lease, paused, off, or not running';
COMMENT ON COLUMN outbox.status.redis_state IS 'up, down, or unknown before outbox.redis_url was tried and while dispatch is off';
COMMENT ON COLUMN outbox.status.redis_error IS 'why Redis is down, another server publishes, or a hash slot cannot be written to; NULL: nothing is wrong';
COMMENT ON COLUMN outbox.status.pending IS 'committed messages that are not yet known to be in Redis; an upper bound while some of them are being deferred, and beyond 2,000 that no window holds yet';
COMMENT ON COLUMN outbox.status.oldest_pending IS 'age of the oldest pending message: how long ago it was enqueued';
COMMENT ON COLUMN outbox.status.sent IS 'messages sent since the server started';
COMMENT ON COLUMN outbox.status.duplicates IS 'duplicates refused since the server started';
COMMENT ON COLUMN outbox.status.deferred IS 'messages that wait because their destination is paused, or refused them or one before them, or because a dead message holds them back';
COMMENT ON COLUMN outbox.status.scheduled IS 'messages that wait for their time';
COMMENT ON COLUMN outbox.status.dead IS 'messages given up after outbox.max_attempts; see outbox.dead_letters';
COMMENT ON COLUMN outbox.status.windows IS 'windows that are opened and not yet published';
COMMENT ON COLUMN outbox.status.log_size IS 'bytes on disk of the log';
COMMENT ON COLUMN outbox.status.last_cleanup IS 'when expiry last ran';
COMMENT ON COLUMN outbox.status.problem IS 'NULL, or what is wrong and what to do about it; of several problems the worst, see outbox.problems';

CREATE VIEW outbox.problems AS SELECT * FROM outbox.read_problems();
COMMENT ON VIEW outbox.problems IS 'what is wrong with the outbox of this database: one row for each problem, the worst first';
COMMENT ON COLUMN outbox.problems.kind IS 'short name of the problem, for monitoring';
COMMENT ON COLUMN outbox.problems.severity IS 'critical: nothing is sent, or not to a part of Redis, or messages are refused or lost; warning: something is not done, or in danger';
COMMENT ON COLUMN outbox.problems.problem IS 'what is wrong and what to do about it';
COMMENT ON COLUMN outbox.problems.since IS 'when it was noticed; NULL: not known';

CREATE VIEW outbox.pending AS SELECT * FROM outbox.read_pending();
COMMENT ON VIEW outbox.pending IS 'committed messages that are not yet known to be in Redis: at most 1000 of them';
COMMENT ON COLUMN outbox.pending.id IS 'order of the calls';
COMMENT ON COLUMN outbox.pending.message_id IS 'id that consumers see';
COMMENT ON COLUMN outbox.pending.dest IS 'destination';
COMMENT ON COLUMN outbox.pending.enqueued_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox.pending.cause IS 'incoming message that caused it';
COMMENT ON COLUMN outbox.pending.headers IS 'headers';
COMMENT ON COLUMN outbox.pending.body_size IS 'bytes of the body';
COMMENT ON COLUMN outbox.pending.state IS 'new, scheduled, deferred, or held back by a dead message of its key';
COMMENT ON COLUMN outbox.pending.attempts IS 'attempts of a deferred message';
COMMENT ON COLUMN outbox.pending.next_attempt IS 'when a deferred message is due';
COMMENT ON COLUMN outbox.pending.last_error IS 'what Redis answered to its last attempt';
COMMENT ON COLUMN outbox.pending.key IS 'key whose messages stay in order; NULL: none was given';

-- A barrier: a function in a query on it would be called with bodies of messages that are not dead.
CREATE VIEW outbox.dead_letters WITH (security_barrier) AS
	SELECT id, message_id, dest, enqueued_at, cause, headers, body, attempts, last_error, first_attempt, last_attempt,
		partition_key AS key
	FROM outbox.deferred WHERE state = 'dead';
COMMENT ON VIEW outbox.dead_letters IS 'messages given up after outbox.max_attempts: call outbox_retry() or outbox_discard() for them';
COMMENT ON COLUMN outbox.dead_letters.id IS 'order of the calls';
COMMENT ON COLUMN outbox.dead_letters.message_id IS 'id that consumers see';
COMMENT ON COLUMN outbox.dead_letters.dest IS 'destination';
COMMENT ON COLUMN outbox.dead_letters.enqueued_at IS 'when it was enqueued';
COMMENT ON COLUMN outbox.dead_letters.cause IS 'incoming message that caused it';
COMMENT ON COLUMN outbox.dead_letters.headers IS 'headers';
COMMENT ON COLUMN outbox.dead_letters.body IS 'body; NULL: it could not be read; outbox_retry() has it read again as long as the log has it, and leaves the message alone after that';
COMMENT ON COLUMN outbox.dead_letters.attempts IS 'how many times it was tried';
COMMENT ON COLUMN outbox.dead_letters.last_error IS 'what Redis answered to the last attempt';
COMMENT ON COLUMN outbox.dead_letters.first_attempt IS 'first attempt';
COMMENT ON COLUMN outbox.dead_letters.last_attempt IS 'last attempt';
COMMENT ON COLUMN outbox.dead_letters.key IS 'key whose messages stay in order; NULL: none was given';

-- A message that is being tried again is in the log, where nothing says that it was
-- refused. Its tombstone does, and tells from its time that this is so now.
CREATE VIEW outbox.destinations AS
	SELECT dest, coalesce(d.stream, dest) AS stream, d.maxlen, coalesce(d.format, 'plain') AS format, coalesce(d.paused, false) AS paused,
		coalesce(k.waiting, 0) AS deferred, coalesce(k.scheduled, 0) AS scheduled, coalesce(k.dead, 0) AS dead,
		k.oldest_deferred, k.next_attempt, k.last_error, nullif(d.partitions, 0) AS partitions,
		coalesce(d.on_dead, 'pass') AS on_dead, coalesce(k.held, 0) AS held
	FROM (SELECT * FROM outbox.destination WHERE dest <> '') d
		FULL JOIN (
			SELECT f.dest,
				count(*) FILTER (WHERE state = 'waiting') AS waiting,
				count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
				count(*) FILTER (WHERE state = 'dead') AS dead,
				count(*) FILTER (WHERE state = 'held') AS held,
				clock_timestamp() - min(enqueued_at) FILTER (WHERE state = 'waiting') AS oldest_deferred,
				min(next_attempt) FILTER (WHERE state = 'waiting') AS next_attempt,
				(array_agg(last_error ORDER BY last_attempt DESC) FILTER (WHERE last_error IS NOT NULL))[1] AS last_error
			FROM outbox.deferred f
			WHERE state = ANY (ARRAY['waiting', 'scheduled', 'dead', 'held'])
				OR (state = 'returned' AND last_error IS NOT NULL AND next_attempt > clock_timestamp() - interval '5 s')
			GROUP BY f.dest) k USING (dest);
COMMENT ON VIEW outbox.destinations IS 'destinations that have settings, or messages that are deferred, scheduled or dead';
COMMENT ON COLUMN outbox.destinations.dest IS 'destination';
COMMENT ON COLUMN outbox.destinations.stream IS 'key of its stream in Redis';
COMMENT ON COLUMN outbox.destinations.maxlen IS 'approximate length to which the stream is trimmed; NULL: outbox.stream_maxlen';
COMMENT ON COLUMN outbox.destinations.format IS 'form of its entries: plain or cloudevents';
COMMENT ON COLUMN outbox.destinations.paused IS 'whether outbox_pause() holds its messages';
COMMENT ON COLUMN outbox.destinations.deferred IS 'messages that wait because it is paused, or refused them or one before them';
COMMENT ON COLUMN outbox.destinations.scheduled IS 'messages that wait for their time';
COMMENT ON COLUMN outbox.destinations.dead IS 'messages given up after outbox.max_attempts';
COMMENT ON COLUMN outbox.destinations.oldest_deferred IS 'age of its oldest deferred message: how long ago it was enqueued';
COMMENT ON COLUMN outbox.destinations.next_attempt IS 'when the first of its deferred messages is tried again';
COMMENT ON COLUMN outbox.destinations.last_error IS 'what Redis answered last to a deferred or dead message, or to one that was tried again in the last seconds';
COMMENT ON COLUMN outbox.destinations.partitions IS 'how many streams its messages are spread over; NULL: one, with the name of the stream';
COMMENT ON COLUMN outbox.destinations.on_dead IS 'pass: later messages overtake a dead one; hold: a dead message holds back the later ones of its key';
COMMENT ON COLUMN outbox.destinations.held IS 'messages that a dead one holds back until it is retried or discarded';

CREATE VIEW outbox.records AS SELECT * FROM outbox.read_records();
COMMENT ON VIEW outbox.records IS 'messages remembered as processed; those that were compacted are remembered too, but not shown';
COMMENT ON COLUMN outbox.records.endpoint IS 'endpoint that processed the message';
COMMENT ON COLUMN outbox.records.msgid IS 'id of the incoming message';
COMMENT ON COLUMN outbox.records.tx IS 'transaction that processed it; 0: it was restored; NULL: it is in a custom record table';
COMMENT ON COLUMN outbox.records.segment IS 'segment of the ring that holds the record; NULL: it is in a custom record table';
COMMENT ON COLUMN outbox.records.state IS 'state of that segment: current, sealed, or quiet; in a custom record table: dispatched, or not dispatched';

CREATE VIEW outbox.endpoints AS
	SELECT r.name, r.concurrency, r.retention, e.record_table,
		outbox.mask_store(e.dedup_store) AS dedup_store, r.store_retention,
		r.records, r.duplicates, clock_timestamp() - r.oldest_since AS oldest_record, r.size
	FROM outbox.read_endpoints() r LEFT JOIN outbox.endpoint e ON e.name = r.name;
COMMENT ON VIEW outbox.endpoints IS 'endpoints: their settings, defaults filled in, and what is remembered for them';
COMMENT ON COLUMN outbox.endpoints.name IS 'name';
COMMENT ON COLUMN outbox.endpoints.concurrency IS 'optimistic or pessimistic';
COMMENT ON COLUMN outbox.endpoints.retention IS 'how long a record outlives its dispatch; with a store no shorter than outbox.replay_window';
COMMENT ON COLUMN outbox.endpoints.record_table IS 'custom record table that holds the records; NULL: the tables of the extension';
COMMENT ON COLUMN outbox.endpoints.dedup_store IS 'URL of the deduplication store that remembers message ids, without its password; NULL: none';
COMMENT ON COLUMN outbox.endpoints.store_retention IS 'how long that store keeps ids; NULL: there is no store';
COMMENT ON COLUMN outbox.endpoints.records IS 'number of records; an estimate for a large custom record table';
COMMENT ON COLUMN outbox.endpoints.duplicates IS 'duplicates refused since the server started; NULL: too many endpoints had some before this one';
COMMENT ON COLUMN outbox.endpoints.oldest_record IS 'age of its oldest record: how long ago its retention began, or the segment that holds it; NULL: it has none that is dispatched';
COMMENT ON COLUMN outbox.endpoints.size IS 'bytes on disk; where several endpoints share a table, its share';

--
-- Logical replication: a publication of all tables includes ours, but each
-- outbox has its own rings, windows and deferred messages.
--
DO $$
DECLARE
	own_table regclass;
BEGIN
	FOR own_table IN
		SELECT c.oid FROM pg_class c
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(ring|instance|era|lane|loss|mapping|compacted|forgotten|deferred|(window|log|record|history)_[0-9]+)$'
		ORDER BY c.relname
	LOOP
		EXECUTE format('CREATE TRIGGER refuse_replicated BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION outbox.refuse_replicated()', own_table);
		EXECUTE format('COMMENT ON TRIGGER refuse_replicated ON %s IS ''drops what logical replication applies''', own_table);
		EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER refuse_replicated', own_table);
	END LOOP;
END
$$;

--
-- Dump and restore. What comes back by COPY goes through the trigger into the
-- current segment; our own inserts in C pass no trigger. ALWAYS, because a
-- subscriber of logical replication must drop what it is sent, not publish it.
--
-- The restored messages get new ids in the order in which they come: so all that
-- is pending, whichever segment it is in, is dumped as rows of log_0 in the order of
-- the ids. pg_dump appends the condition to its SELECT as it is. It locks all
-- tables before it reads the first one; then we can tell whether it comes too late
-- for records or messages that its snapshot needs. The body of a waiting message that could not be
-- read is dumped from the log; if it still cannot be read, the dump fails. A message that
-- is dead without its body is not dumped: no log could take it, so the whole restore
-- would fail.
--
DO $$
DECLARE
	segment_table regclass;
	segment_name name;
	pending CONSTANT text := (
		SELECT string_agg(format('%s WHERE CASE WHEN dest IS NULL THEN outbox.is_to_propagate(tx) ELSE outbox.is_pending(tx) '
				'AND NOT EXISTS (SELECT FROM outbox.deferred d WHERE d.id = log_%2$s.id AND (d.state <> ''returned'' OR d.returned_tx <> log_%2$s.tx)) END',
				CASE segment WHEN 0 THEN '' ELSE format('UNION ALL SELECT * FROM outbox.log_%s', segment) END, segment), ' ' ORDER BY segment)
		FROM outbox.ring WHERE ring = 'log')
		|| ' UNION ALL SELECT id, ''0'', enqueued_at, ''0'', NULL, dest, body, cause, coalesce(key, ''00000000-0000-0000-0000-000000000000''), headers, message_id, CASE state WHEN ''scheduled'' THEN next_attempt END, partition_key, NULL, NULL, NULL'
		|| ' FROM outbox.deferred WHERE state IN (''scheduled'', ''waiting'', ''held'', ''dead'') AND body IS NOT NULL'
		|| (
			SELECT string_agg(format(' UNION ALL SELECT l.id, ''0'', l.enqueued_at, ''0'', l.message_uuid, l.dest, l.body, l.cause, l.key, l.headers, l.message_id, l.deliver_at, l.partition_key, NULL, NULL, NULL '
				'FROM outbox.deferred d JOIN outbox.log_%s l ON l.id = d.id AND l.tx = d.log_tx WHERE d.state IN (''scheduled'', ''waiting'', ''held'')', segment), '' ORDER BY segment)
			FROM outbox.ring WHERE ring = 'log')
		|| ' UNION ALL SELECT * FROM outbox.log_0 WHERE NOT outbox.dump_is_complete() ORDER BY id';
BEGIN
	FOR segment_table, segment_name IN
		SELECT c.oid, c.relname FROM pg_class c
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(log_[0-9]+|record_[0-9]+|history_[0-9]+|deferred|forgotten)$'
		ORDER BY c.relname
	LOOP
		EXECUTE format('CREATE TRIGGER redirect_restored BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION outbox.redirect_restored()', segment_table);
		EXECUTE format('COMMENT ON TRIGGER redirect_restored ON %s IS ''sends restored rows to where they belong in this database''', segment_table);
		EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER redirect_restored', segment_table);
		PERFORM pg_extension_config_dump(segment_table, CASE
			WHEN segment_name = 'log_0' THEN pending
			WHEN segment_name ~ '^(log_|deferred$)' THEN 'WHERE false'
			ELSE '' END);
	END LOOP;
END
$$;

CREATE TRIGGER check_endpoint BEFORE INSERT OR UPDATE ON outbox.endpoint
	FOR EACH ROW EXECUTE FUNCTION outbox.check_endpoint();
COMMENT ON TRIGGER check_endpoint ON outbox.endpoint IS 'refuses what the role that writes the row may not name';
ALTER TABLE outbox.endpoint ENABLE ALWAYS TRIGGER check_endpoint;

-- For each row: logical replication fires no triggers for statements.
CREATE TRIGGER endpoint_changed AFTER INSERT OR UPDATE OR DELETE ON outbox.endpoint
	FOR EACH ROW EXECUTE FUNCTION outbox.endpoint_changed();
COMMENT ON TRIGGER endpoint_changed ON outbox.endpoint IS 'makes every session read the settings of endpoints again';
ALTER TABLE outbox.endpoint ENABLE ALWAYS TRIGGER endpoint_changed;
CREATE TRIGGER endpoint_changed_by_truncate AFTER TRUNCATE ON outbox.endpoint
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.endpoint_changed();
COMMENT ON TRIGGER endpoint_changed_by_truncate ON outbox.endpoint IS 'makes every session read the settings of endpoints again';
ALTER TABLE outbox.endpoint ENABLE ALWAYS TRIGGER endpoint_changed_by_truncate;

CREATE TRIGGER delivery_changed AFTER INSERT OR UPDATE OR DELETE ON outbox.destination
	FOR EACH ROW EXECUTE FUNCTION outbox.delivery_changed();
COMMENT ON TRIGGER delivery_changed ON outbox.destination IS 'makes the dispatcher read it again';
ALTER TABLE outbox.destination ENABLE ALWAYS TRIGGER delivery_changed;
CREATE TRIGGER delivery_changed_by_truncate AFTER TRUNCATE ON outbox.destination
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.delivery_changed();
COMMENT ON TRIGGER delivery_changed_by_truncate ON outbox.destination IS 'makes the dispatcher read it again';
ALTER TABLE outbox.destination ENABLE ALWAYS TRIGGER delivery_changed_by_truncate;

CREATE TRIGGER delivery_changed AFTER UPDATE OR DELETE OR TRUNCATE ON outbox.deferred
	FOR EACH STATEMENT EXECUTE FUNCTION outbox.delivery_changed();
COMMENT ON TRIGGER delivery_changed ON outbox.deferred IS 'makes the dispatcher read it again';
ALTER TABLE outbox.deferred ENABLE ALWAYS TRIGGER delivery_changed;
CREATE TRIGGER discarded AFTER UPDATE ON outbox.deferred
	FOR EACH ROW WHEN (OLD.state <> 'discarded' AND NEW.state = 'discarded') EXECUTE FUNCTION outbox.discarded();
COMMENT ON TRIGGER discarded ON outbox.deferred IS 'causes the record to be marked as dispatched, because none of its messages will be sent any more';
ALTER TABLE outbox.deferred ENABLE ALWAYS TRIGGER discarded;

SELECT pg_extension_config_dump('outbox.endpoint', '');
SELECT pg_extension_config_dump('outbox.destination', '');

--
-- Privileges: no role has any until outbox_grant() gives them.
--
CREATE FUNCTION outbox.privileges(access text)
RETURNS TABLE (object text)
AS $$
	SELECT format('ROUTINE %s', p.oid::regprocedure)
	FROM pg_proc p
		JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'outbox'
	WHERE p.proname = ANY (CASE access
		WHEN 'application' THEN '{outbox_begin,outbox_enqueue,outbox_enqueue_many,outbox_commit,outbox_wait,outbox_send,
			outbox_begin_message,outbox_enqueue_message,outbox_commit_message,outbox_forward,outbox_capture,outbox_uncapture}'::name[]
		WHEN 'store' THEN '{store_contains,store_add,store_remove,store_retention}'::name[]
		WHEN 'monitor' THEN '{read_status,read_problems,read_pending,read_records,read_endpoints,mask_store}'::name[]
		WHEN 'admin' THEN '{outbox_create_endpoint,outbox_alter_endpoint,outbox_drop_endpoint,outbox_cleanup,outbox_forget,outbox_enqueued,
			outbox_set_destination,outbox_pause,outbox_resume,outbox_retry,outbox_discard,outbox_acknowledge_loss,outbox_replay}'::name[]
	END)
	UNION ALL
	SELECT format('TABLE outbox.%s', v)
	FROM unnest('{status,problems,destinations,pending,records,endpoints}'::text[]) v
	WHERE access = 'monitor'
	UNION ALL
	SELECT 'TABLE outbox.dead_letters' WHERE access = 'admin'
	UNION ALL
	SELECT 'SCHEMA outbox' WHERE access IN ('monitor', 'store')
	UNION ALL
	SELECT CASE n.nspname WHEN 'outbox' THEN 'SCHEMA outbox' ELSE format('SCHEMA %I', n.nspname) END
	FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
	WHERE access IN ('application', 'admin') AND e.extname = 'outbox' AND n.nspname <> 'public'
$$
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION outbox.privileges(text) IS 'objects that a kind of access needs';

CREATE FUNCTION outbox.set_access(verb text, role regrole, access text)
RETURNS void
AS $$
DECLARE
	kinds text[];
	wanted record;
BEGIN
	IF role IS NULL THEN
		RAISE EXCEPTION 'role must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	kinds := CASE access
		WHEN 'application' THEN '{application}'::text[]
		WHEN 'monitor' THEN '{monitor}'::text[]
		WHEN 'store' THEN '{store}'::text[]
		WHEN 'admin' THEN '{monitor,admin}'::text[]
	END;
	IF kinds IS NULL THEN
		RAISE EXCEPTION 'invalid access: "%"', access USING ERRCODE = 'invalid_parameter_value',
			HINT = 'Use "application", "monitor", "admin" or "store".';
	END IF;
	-- Schemas come last: they are kept while another kind of access needs them.
	FOR wanted IN
		SELECT p.object, split_part(p.object, ' ', 1) AS kind
		FROM unnest(kinds) k, outbox.privileges(k) p
		GROUP BY 1
		ORDER BY split_part(p.object, ' ', 1) = 'SCHEMA', 1
	LOOP
		CONTINUE WHEN wanted.kind = 'SCHEMA' AND verb LIKE 'REVOKE%' AND EXISTS (
			SELECT FROM unnest('{application,monitor,admin,store}'::text[]) k, outbox.privileges(k) s, outbox.privileges(k) f
			WHERE s.object = wanted.object AND f.object LIKE 'ROUTINE %'
				AND has_function_privilege(role, substr(f.object, 9), 'EXECUTE'));
		EXECUTE format(verb, CASE wanted.kind WHEN 'ROUTINE' THEN 'EXECUTE' WHEN 'SCHEMA' THEN 'USAGE' ELSE 'SELECT' END, wanted.object, role);
	END LOOP;
END
$$
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION outbox.set_access(text, regrole, text) IS 'grants or revokes what a kind of access needs';

CREATE FUNCTION @extschema@.outbox_grant(role regrole, access text DEFAULT 'application')
RETURNS void
AS $$ SELECT outbox.set_access('GRANT %s ON %s TO %s', role, access) $$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_grant(regrole, text) IS 'gives a role the privileges of an application, a monitor, an administrator, or a server that has this database as its store';

CREATE FUNCTION @extschema@.outbox_revoke(role regrole, access text DEFAULT 'application')
RETURNS void
AS $$ SELECT outbox.set_access('REVOKE %s ON %s FROM %s', role, access) $$
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.outbox_revoke(regrole, text) IS 'takes from a role what outbox_grant() gave it';

-- Takes away what PostgreSQL grants to PUBLIC, and ALTER DEFAULT PRIVILEGES to others.
DO $$
DECLARE
	own record;
BEGIN
	FOR own IN
		WITH members AS (
			SELECT d.classid, d.objid
			FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
			WHERE e.extname = 'outbox' AND d.deptype = 'e'),
		objects AS (
			SELECT format('ROUTINE %s', p.oid::regprocedure) AS name, p.proowner AS owner, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
			FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
			UNION ALL
			SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass), c.relowner, c.relacl
			FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
			WHERE c.relkind = ANY ('{r,v,S}')
			UNION ALL
			SELECT 'SCHEMA outbox', n.nspowner, n.nspacl
			FROM pg_namespace n JOIN members m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid)
		SELECT DISTINCT o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
		FROM objects o, aclexplode(o.acl) a
		WHERE a.grantee <> o.owner
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', own.name, own.grantee);
	END LOOP;
END
$$;

-- pg_dump calls these, and whoever may read all tables may dump them.
GRANT EXECUTE ON FUNCTION outbox.is_pending(xid8), outbox.is_to_propagate(xid8), outbox.dump_is_complete() TO pg_read_all_data;

SELECT outbox.wake_launcher();
