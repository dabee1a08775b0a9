-- An outbox table that exists already sends its rows, after one CREATE TRIGGER.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
SET client_min_messages = warning; DROP ROLE IF EXISTS regress_outbox_owner, regress_outbox_writer; RESET client_min_messages;
\set SHOW_CONTEXT never
SET timezone = 'UTC';
CREATE TEMP VIEW sent AS SELECT dest, message_id AS id, cause, headers, encode(body, 'escape') AS body, deliver_at FROM outbox_enqueued();

-- An outbox made by hand: columns, and expressions on them.
CREATE TABLE messages (id integer, topic text, payload jsonb, kind varchar(20), attempts integer, due timestamptz);
CREATE TRIGGER forward AFTER INSERT ON messages FOR EACH ROW
	EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', $$id='m-' || id$$, 'header.kind=kind', 'header.tries=NEW.attempts + 1', 'deliver_at=due');
BEGIN;
INSERT INTO messages VALUES (1, 'orders', '{"n": 1}', 'placed', 0), (2, 'orders', NULL, NULL, NULL);
INSERT INTO messages VALUES (3, 'mails', '{"n": 3}', 'cancelled', 4, '2100-01-01');
TABLE sent;
SAVEPOINT s;
INSERT INTO messages VALUES (4, 'orders', '{"n": 4}');
ROLLBACK TO s;
SELECT outbox_begin('forward-1');
COPY messages (id, topic, payload) FROM stdin;
5	orders	5
\.
SELECT outbox_commit();
SELECT id, cause, body FROM sent OFFSET 3;
COMMIT;
SELECT count(*) FROM messages;

-- Any type, and any function that is named in full, whatever the search_path.
CREATE SCHEMA mine;
CREATE FUNCTION mine.upper(text) RETURNS text LANGUAGE sql AS $$ SELECT 'not this one' $$;
CREATE FUNCTION mine.stream(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'stream-' || $1 $$;
CREATE TABLE typed (u uuid, b bytea, j json, a integer[], t "char", n numeric);
CREATE TRIGGER forward AFTER INSERT ON typed FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=mine.stream(upper(t::text))', 'body=b', 'id=u', 'header.n=n', 'header.a=a', 'header.j=j', 'header.none=NULL');
SET search_path = mine, public;
BEGIN;
INSERT INTO typed VALUES ('6ba7b810-9dad-11d1-80b4-00c04fd430c8', '\x00ff41', '{"a": 1}', '{1,2}', 'q', 1.50);
SELECT dest, id, headers, body FROM sent;
-- A function that is replaced counts from then on.
CREATE OR REPLACE FUNCTION mine.stream(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'river-' || $1 $$;
INSERT INTO typed (t, b) VALUES ('q', 'x');
SELECT dest FROM sent OFFSET 1;
ROLLBACK;
RESET search_path;

-- Strings and comparisons mean the same in a session that reads them otherwise.
CREATE TABLE read (topic text, payload text);
CREATE TRIGGER forward AFTER INSERT ON read FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest=CASE WHEN topic = NULL THEN 'none' ELSE 'a\142' END$$, 'body=payload',
	$$header.array=cardinality(array_remove('{NULL,x}'::text[], NULL))$$, $$header.xml='no document'::xml$$, $$header.moment='2026-01-01 00:00 IST'::timestamptz$$);
SET escape_string_warning = off;
SET standard_conforming_strings = off;
SET transform_null_equals = on;
SET array_nulls = off;
SET xmloption = document;
SET timezone_abbreviations = 'India';
BEGIN;
INSERT INTO read VALUES (NULL, 'x');
SELECT dest, headers FROM sent;
ROLLBACK;
RESET timezone_abbreviations;
RESET xmloption;
RESET array_nulls;
RESET transform_null_equals;
RESET standard_conforming_strings;
RESET escape_string_warning;
DROP TABLE read;

-- An expression is evaluated once for a row: its value may be another one next time, or NULL.
CREATE SEQUENCE turns;
CREATE TABLE turned (payload json);
CREATE TRIGGER forward AFTER INSERT ON turned FOR EACH ROW
	EXECUTE FUNCTION outbox_forward($$dest='d'$$, $$body=CASE nextval('public.turns') % 2 WHEN 1 THEN payload END$$, $$headers=CASE nextval('public.turns') % 2 WHEN 0 THEN payload END$$);
BEGIN;
INSERT INTO turned VALUES ('{"a": 1}'), ('{"a": 2}');
SELECT headers, body FROM sent;
ROLLBACK;
SELECT nextval('turns');
DROP TABLE turned;
DROP SEQUENCE turns;

-- The blanks that fill up char(n) are not part of a name.
CREATE TABLE padded (topic char(10), id char(40), payload char(10));
CREATE TRIGGER forward AFTER INSERT ON padded FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'id=id', 'key=topic', 'header.topic=topic');
BEGIN;
INSERT INTO padded VALUES ('shop', 'm-1', 'x');
SELECT dest, message_id, key, headers, body FROM outbox_enqueued();
ROLLBACK;
DROP TABLE padded;

-- So do an operator and a type.
CREATE FUNCTION mine.louder(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '!' || $2 $$;
CREATE FUNCTION mine.softer(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '.' || $2 $$;
CREATE OPERATOR mine.&&& (FUNCTION = mine.louder, LEFTARG = text, RIGHTARG = text);
CREATE DOMAIN mine.short AS text;
CREATE TYPE mine.kind AS ENUM ('a');
CREATE TABLE named (body text, kind text);
CREATE TRIGGER forward AFTER INSERT ON named FOR EACH ROW
	EXECUTE FUNCTION outbox_forward($$dest='d'$$, 'body=body OPERATOR(mine.&&&) body::mine.short', 'header.kind=kind::mine.kind');
BEGIN;
INSERT INTO named VALUES ('x', 'a');
DROP OPERATOR mine.&&& (text, text);
CREATE OPERATOR mine.&&& (FUNCTION = mine.softer, LEFTARG = text, RIGHTARG = text);
INSERT INTO named VALUES ('y', 'a');
DROP TYPE mine.kind;
CREATE TYPE mine.kind AS ENUM ('b');
INSERT INTO named VALUES ('z', 'b');
SELECT body, headers FROM sent;
ALTER DOMAIN mine.short ADD CHECK (length(VALUE) = 1);
INSERT INTO named VALUES ('too long', 'b');
\echo :SQLSTATE
ROLLBACK;
DROP TABLE named;

-- So does a type that only a function in SQL names, which becomes part of the expression.
CREATE DOMAIN mine.word AS text CHECK (VALUE <> 'bad');
CREATE FUNCTION mine.checked(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::mine.word::text';
CREATE TABLE checked (topic text, payload text);
CREATE TRIGGER forward AFTER INSERT ON checked FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=mine.checked(topic)', 'body=payload');
BEGIN;
INSERT INTO checked VALUES ('d', 'one');
DROP DOMAIN mine.word;
CREATE DOMAIN mine.word AS text CHECK (VALUE <> 'worse');
INSERT INTO checked VALUES ('bad', 'two');
SELECT dest, body FROM sent;
ROLLBACK;
DROP TABLE checked;
DROP FUNCTION mine.checked;
DROP DOMAIN mine.word;

-- So does a composite type.
CREATE TYPE mine.point AS (x integer, y integer);
CREATE TABLE drawn (p mine.point);
CREATE TRIGGER forward AFTER INSERT ON drawn FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest='d'$$, 'body=(p).x');
BEGIN;
INSERT INTO drawn VALUES ((1, 2));
ALTER TYPE mine.point RENAME ATTRIBUTE x TO z;
ALTER TYPE mine.point RENAME ATTRIBUTE y TO x;
INSERT INTO drawn VALUES ((1, 2));
SELECT body FROM sent;
ALTER TYPE mine.point DROP ATTRIBUTE x;
INSERT INTO drawn VALUES (ROW(1));
\echo :SQLSTATE
ROLLBACK;
DROP TABLE drawn;

-- Debezium
CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
CREATE TRIGGER forward AFTER INSERT ON outboxevent FOR EACH ROW EXECUTE FUNCTION outbox_forward('debezium');
BEGIN;
INSERT INTO outboxevent VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'Order', '1', 'OrderCreated', '{"id": 1}');
SELECT dest, message_id, headers, encode(body, 'escape') AS body FROM outbox_enqueued();
ROLLBACK;
-- Debezium takes a row without an aggregate; its message has no key.
BEGIN;
INSERT INTO outboxevent VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'Order', '', 'OrderCreated', '{}'),
	('406c07f3-26f0-4eea-a50c-109940064b90', 'Order', '7', 'OrderCreated', '{}');
SELECT message_id, key FROM outbox_enqueued();
ROLLBACK;
-- An argument counts more than the shape.
CREATE OR REPLACE TRIGGER forward AFTER INSERT ON outboxevent FOR EACH ROW EXECUTE FUNCTION outbox_forward('debezium', 'dest=lower(aggregatetype)', 'key=NULL');
BEGIN;
INSERT INTO outboxevent VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'Order', '1', 'OrderCreated', '{"id": 1}');
SELECT dest, headers, body FROM sent;
ROLLBACK;

-- MassTransit
CREATE TABLE "OutboxMessage" ("SequenceNumber" bigserial PRIMARY KEY, "EnqueueTime" timestamptz, "SentTime" timestamptz NOT NULL, "Headers" text, "Properties" text,
	"InboxMessageId" uuid, "InboxConsumerId" uuid, "OutboxId" uuid, "MessageId" uuid NOT NULL, "ContentType" varchar(256) NOT NULL, "MessageType" text NOT NULL,
	"Body" text NOT NULL, "ConversationId" uuid, "CorrelationId" uuid, "InitiatorId" uuid, "RequestId" uuid, "SourceAddress" varchar(256),
	"DestinationAddress" varchar(256), "ResponseAddress" varchar(256), "FaultAddress" varchar(256), "ExpirationTime" timestamptz);
CREATE TRIGGER forward AFTER INSERT ON "OutboxMessage" FOR EACH ROW EXECUTE FUNCTION outbox_forward('masstransit');
BEGIN;
INSERT INTO "OutboxMessage" ("SentTime", "Headers", "MessageId", "ContentType", "MessageType", "Body", "DestinationAddress", "CorrelationId")
	VALUES (now(), '{"MT-Host": {"machine": "a"}, "tenant": "t1", "none": null}', '00000000-0000-0000-0000-00000000000a', 'application/vnd.masstransit+json',
		'urn:message:Shop:OrderSubmitted', '{"message": {"order": 1}}', 'rabbitmq://localhost/orders', '00000000-0000-0000-0000-00000000000b'),
	(now(), '', '00000000-0000-0000-0000-00000000000c', 'application/json', '', '{}', 'queue:mails', NULL);
SELECT * FROM sent;
ROLLBACK;

-- CAP
CREATE TABLE published ("Id" bigint PRIMARY KEY, "Version" varchar(20) NOT NULL, "Name" varchar(200) NOT NULL, "Content" text, "Retries" int NOT NULL,
	"Added" timestamp NOT NULL, "ExpiresAt" timestamp, "StatusName" varchar(50) NOT NULL);
CREATE TRIGGER forward AFTER INSERT ON published FOR EACH ROW EXECUTE FUNCTION outbox_forward('cap');
BEGIN;
INSERT INTO published VALUES (4711, 'v1', 'order.created', '{"Headers":{"cap-msg-id":"4711","cap-corr-seq":"0","cap-callback-name":null},"Value":{"order":1}}', 0, now(), NULL, 'Scheduled');
SELECT * FROM sent;
ROLLBACK;

-- NServiceBus, SQL persistence: pessimistic, so that the operations come later; marking them as dispatched sends nothing.
CREATE TABLE "BillingOutboxData" ("MessageId" varchar(200) PRIMARY KEY, "Dispatched" boolean NOT NULL DEFAULT false, "DispatchedAt" timestamp,
	"PersistenceVersion" varchar(23), "Operations" jsonb NOT NULL);
CREATE TRIGGER forward AFTER INSERT OR UPDATE OF "Operations" ON "BillingOutboxData" FOR EACH ROW EXECUTE FUNCTION outbox_forward('nservicebus', $$header.source='Billing'$$);
BEGIN;
INSERT INTO "BillingOutboxData" ("MessageId", "Operations") VALUES ('in-1', '[]');
UPDATE "BillingOutboxData" SET "Operations" = '[{"MessageId": "out-1", "Options": {"Destination": "Shipping"}, "Headers": {"NServiceBus.MessageId": "out-1", "x": null}, "Body": "aGVsbG8="},
	{"MessageId": "out-2", "Options": {"EventType": "Shop.Billed", "DeliverAt": "2100-01-02 03:04:05:678901 Z"}, "Headers": {}, "Body": ""},
	{"MessageId": "out-3", "Options": {"EventType": "Shop.Paid, Shop.Contracts, Version=1.2.0.0, Culture=neutral, PublicKeyToken=null"}, "Headers": {}, "Body": ""},
	{"MessageId": "out-4", "Options": {"EventType": "Shop.Changed`1[[Shop.User, Shop]], Shop.Contracts, Version=1.2.0.0"}, "Headers": {}, "Body": ""}]' WHERE "MessageId" = 'in-1';
UPDATE "BillingOutboxData" SET "Dispatched" = true, "DispatchedAt" = now(), "Operations" = '[]' WHERE "MessageId" = 'in-1';
SELECT * FROM sent;
ROLLBACK;

-- NServiceBus, NHibernate persistence: text, and bytes as numbers; a delay.
CREATE TABLE outboxrecord (id bigserial, messageid varchar(255), dispatched boolean, dispatchedat timestamp, transportoperations text);
CREATE TRIGGER forward AFTER INSERT ON outboxrecord FOR EACH ROW EXECUTE FUNCTION outbox_forward('operations=transportoperations');
BEGIN;
INSERT INTO outboxrecord (messageid, transportoperations) VALUES ('Returns/1', NULL), ('Returns/2',
	'[{"MessageId": "out-3", "Message": [104, 105, 0, 255], "Options": {"Destination": "Refunds", "DelayDeliveryFor": "1.00:00:10"}, "Headers": {"a": "b"}}]');
SELECT dest, id, headers, body, deliver_at - now() BETWEEN '1 day 9 s' AND '1 day 60 s' AS delayed FROM sent;
ROLLBACK;
-- A delay may be as long as .NET has it, or over.
BEGIN;
INSERT INTO outboxrecord (transportoperations) SELECT format('[{"MessageId": "%s", "Message": [], "Options": {"Destination": "d", "DelayDeliveryFor": "%s"}}]', n, delay)
	FROM unnest('{10675199.02:48:05.4775807,00:00:00,-1.02:03:04,23:59:59.9999999}'::text[]) WITH ORDINALITY t (delay, n);
SELECT id, date_trunc('day', deliver_at - now()) AS delay FROM sent;
ROLLBACK;

-- The row need not stay: it is deleted at once, or not even stored.
CREATE TABLE gone (id integer PRIMARY KEY, topic text, payload text, stay boolean);
CREATE TRIGGER forward AFTER INSERT ON gone FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=stay');
BEGIN;
INSERT INTO gone VALUES (1, 'd', 'one', false), (2, 'd', 'two', true), (3, 'd', 'three', NULL), (4, 'd', 'four', false) RETURNING id;
INSERT INTO gone VALUES (1, 'd', 'one again', false);
SELECT string_agg(id::text, ' ' ORDER BY id) FROM gone;
SELECT body FROM sent;
ROLLBACK;
-- However many rows a statement has, PostgreSQL remembers one command for their deletion.
BEGIN;
INSERT INTO gone SELECT i, 'd', i, false FROM generate_series(1, 5000) i;
SELECT count(*) FROM gone;
SELECT total_bytes <= 8192 AS is_small FROM pg_backend_memory_contexts WHERE name ILIKE 'combo cids';
ROLLBACK;
-- Rows that COPY freezes; and one whose deletion was rolled back before.
CREATE FUNCTION undone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN DELETE FROM gone WHERE id = NEW.id; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN RETURN NULL; END;
END $$;
BEGIN;
TRUNCATE gone;
COPY gone FROM stdin WITH (FREEZE);
1	d	one	f
2	d	two	t
\.
CREATE TRIGGER beforehand AFTER INSERT ON gone FOR EACH ROW EXECUTE FUNCTION undone();
INSERT INTO gone VALUES (3, 'd', 'three', false), (4, 'd', 'four', true), (5, 'd', 'five', false);
SELECT id FROM gone;
SELECT body FROM sent;
ROLLBACK;
DROP FUNCTION undone;
-- A row that another trigger has deleted or changed meanwhile does not stay either.
CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 7 THEN DELETE FROM gone WHERE id = 7; ELSE UPDATE gone SET payload = 'changed' WHERE id = NEW.id; END IF; RETURN NULL; END $$;
CREATE TRIGGER busy AFTER INSERT ON gone FOR EACH ROW EXECUTE FUNCTION busy();
BEGIN;
INSERT INTO gone VALUES (7, 'd', 'seven', false), (8, 'd', 'eight', false);
SELECT id, payload FROM gone;
ROLLBACK;
DROP TRIGGER busy ON gone;
DROP TRIGGER forward ON gone;
CREATE TRIGGER forward BEFORE INSERT ON gone FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=false');
BEGIN;
INSERT INTO gone VALUES (1, 'd', 'one', NULL), (1, 'd', 'two', NULL) RETURNING id;
SELECT count(*) FROM gone;
SELECT body FROM sent;
ROLLBACK;

-- What is generated is not there before the row is stored.
CREATE TABLE made (payload text, upper text GENERATED ALWAYS AS (upper(payload)) STORED);
CREATE TRIGGER forward BEFORE INSERT ON made FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest='d'$$, 'body=upper', 'keep=false');
\echo :SQLSTATE
CREATE TRIGGER forward BEFORE INSERT ON made FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest='d'$$, 'body=payload', 'headers=to_jsonb(new)', 'keep=false');
\echo :SQLSTATE
CREATE TRIGGER forward BEFORE INSERT ON made FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest='d'$$, 'body=payload', 'header.x=upper', 'keep=false');
\echo :SQLSTATE
DROP TABLE made;

-- Sessions with other settings print the same key.
CREATE TABLE printed (at timestamptz, day date, "table" regclass);
CREATE TRIGGER forward AFTER INSERT ON printed FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''printed''', 'body=''''', 'key=at');
CREATE TRIGGER forward_table AFTER INSERT ON printed FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''printed''', 'body=''''', 'key="table"');
CREATE TRIGGER forward_text AFTER INSERT ON printed FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''printed''', 'body=''''', 'key=''day '' || day');
BEGIN;
INSERT INTO printed VALUES ('2026-11-23 04:00+00', '2026-11-23', 'pg_class');
SET LOCAL timezone = 'Asia/Kolkata';
SET LOCAL datestyle = 'SQL, DMY';
SET LOCAL quote_all_identifiers = on;
INSERT INTO printed VALUES ('2026-11-23 04:00+00', '23.11.2026', 'pg_class');
SELECT key FROM outbox_enqueued();
ROLLBACK;
-- Nor does it matter which session reads the arguments first.
CREATE TRIGGER forward_later AFTER INSERT ON printed FOR EACH ROW
	EXECUTE FUNCTION outbox_forward('dest=''printed''', 'body=''''', $$deliver_at='2100-02-01 00:00'::timestamptz + interval '-1 2:00'$$, $$header.day=date '3/2/2100' - date '2100-01-01'$$);
BEGIN;
SET LOCAL timezone = 'Asia/Kolkata';
SET LOCAL datestyle = 'SQL, DMY';
SET LOCAL intervalstyle = 'sql_standard';
INSERT INTO printed DEFAULT VALUES;
SET LOCAL timezone = 'UTC';
SET LOCAL datestyle = 'ISO, MDY';
SELECT headers, deliver_at FROM outbox_enqueued() WHERE headers IS NOT NULL;
ROLLBACK;
DROP TABLE printed;

-- Rows are not deleted where others refer to them, and where that would not be replicated.
CREATE TABLE parent (id integer PRIMARY KEY, topic text);
CREATE TRIGGER forward AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=id', 'keep=false');
CREATE TABLE child (parent integer REFERENCES parent);
CREATE FUNCTION give_birth() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO child VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER birth AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION give_birth();
INSERT INTO parent VALUES (1, 'd');
\echo :SQLSTATE
SELECT count(*) AS parents, (SELECT count(*) FROM child) AS children FROM parent;
CREATE OR REPLACE TRIGGER forward AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=id', 'keep=true');
\echo :SQLSTATE
DROP TABLE child, parent;
DROP FUNCTION give_birth;
CREATE TABLE published_rows (topic text);
CREATE TRIGGER forward AFTER INSERT ON published_rows FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=topic', 'keep=false');
SET client_min_messages = error; CREATE PUBLICATION regress_outbox FOR TABLE published_rows; RESET client_min_messages;
INSERT INTO published_rows VALUES ('d');
\echo :SQLSTATE
SELECT count(*) FROM published_rows;
ALTER PUBLICATION regress_outbox SET (publish = 'insert');
BEGIN;
INSERT INTO published_rows VALUES ('d');
SELECT count(*) FROM published_rows;
ROLLBACK;
DROP PUBLICATION regress_outbox;
DROP TABLE published_rows;

-- A row that another trigger has locked is deleted all the same.
CREATE TABLE locked (topic text);
CREATE TRIGGER forward AFTER INSERT ON locked FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=topic', 'keep=false');
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM FROM locked FOR UPDATE; RETURN NULL; END $$;
CREATE TRIGGER before_it AFTER INSERT ON locked FOR EACH ROW EXECUTE FUNCTION hold();
BEGIN;
INSERT INTO locked VALUES ('d');
SELECT count(*) FROM locked;
ROLLBACK;
DROP TABLE locked;
DROP FUNCTION hold;

-- A partition sends what is inserted into its table.
CREATE TABLE events (id integer, day date, payload text) PARTITION BY RANGE (day);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE events_2 (payload text, dropped integer, day date, id integer);
ALTER TABLE events_2 DROP COLUMN dropped;
ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TRIGGER forward AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION outbox_forward($$dest='events'$$, 'body=payload', 'id=id', 'keep=false');
BEGIN;
INSERT INTO events VALUES (1, '2026-01-05', 'a'), (2, '2026-02-05', 'b');
SELECT id, body FROM sent;
SELECT count(*) FROM events;
ROLLBACK;

-- What is wrong with the arguments is said when the trigger is created.
\set VERBOSITY default
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward();
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'topic=dest');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'dest=kind');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'header.a=kind', 'header.a=topic');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'header.id=kind');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''outbox:x''', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=shop', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('kafka');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('debezium');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload +');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload) HAVING (true');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload), (topic');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=(SELECT 1)');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'deliver_at=attempts');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('operations=payload', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER DELETE ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON messages EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload');
\echo :SQLSTATE
CREATE TRIGGER wrong AFTER INSERT ON outbox.endpoint FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=name', 'body=name');
\echo :SQLSTATE
SELECT count(*) FROM pg_trigger WHERE tgname = 'wrong';

-- The rows of a foreign table are stored elsewhere.
CREATE FOREIGN DATA WRAPPER regress_outbox_wrapper;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER regress_outbox_wrapper;
CREATE FOREIGN TABLE distant (topic text, payload text) SERVER elsewhere;
CREATE TRIGGER wrong AFTER INSERT ON distant FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=false');
\echo :SQLSTATE
CREATE TRIGGER forward BEFORE INSERT ON distant FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=false');
SET client_min_messages = warning;
DROP FOREIGN DATA WRAPPER regress_outbox_wrapper CASCADE;
RESET client_min_messages;

-- The rest is said at the row, whose statement fails.
INSERT INTO messages VALUES (1, NULL, '{}');
\echo :SQLSTATE
INSERT INTO messages VALUES (1, 'outbox:fence', '{}');
\echo :SQLSTATE
INSERT INTO messages VALUES (1, 'd', '{}', '', 0, 'infinity');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('{}');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[1]');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[{"MessageId": "x"}]');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[{"MessageId": "x", "Message": [256], "Options": {"Destination": "d"}}]');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[{"MessageId": "x", "Headers": ["y"], "Options": {"Destination": "d"}}]');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[{"MessageId": "x", "Options": {"Destination": "d", "DelayDeliveryFor": "99999999.00:00:00"}}]');
\echo :SQLSTATE
INSERT INTO outboxrecord (transportoperations) VALUES ('[{"MessageId": "x", "Options": {"Destination": "d", "DelayDeliveryFor": "2562047788:00:54"}}]');
\echo :SQLSTATE
ALTER TABLE messages RENAME payload TO contents;
INSERT INTO messages VALUES (1, 'd', '{}');
\echo :SQLSTATE
-- Such an error leaves nothing behind.
BEGIN;
DO $$ BEGIN FOR n IN 1..100 LOOP BEGIN INSERT INTO messages VALUES (1, 'd', '{}'); EXCEPTION WHEN undefined_column THEN NULL; END; END LOOP; END $$;
SELECT count(*) < 50 AS few FROM pg_backend_memory_contexts WHERE name = 'outbox trigger plan';
ROLLBACK;
ALTER TABLE messages RENAME contents TO payload;
BEGIN;
INSERT INTO messages VALUES (1, 'd', '{}');
SELECT dest FROM sent;
ROLLBACK;

-- Who creates the trigger needs the rights of an application; who inserts needs none.
CREATE ROLE regress_outbox_owner;
CREATE ROLE regress_outbox_writer;
GRANT CREATE ON SCHEMA mine TO regress_outbox_owner;
GRANT USAGE ON SCHEMA mine TO regress_outbox_writer, regress_outbox_owner;
SET ROLE regress_outbox_owner;
CREATE TABLE mine.outbox (topic text, payload text);
GRANT INSERT ON mine.outbox TO regress_outbox_writer;
CREATE TRIGGER forward AFTER INSERT ON mine.outbox FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=false');
\echo :SQLSTATE
RESET ROLE;
SELECT outbox_grant('regress_outbox_owner');
SET ROLE regress_outbox_owner;
CREATE TRIGGER forward AFTER INSERT ON mine.outbox FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'keep=false');
RESET ROLE;
BEGIN;
SET LOCAL ROLE regress_outbox_writer;
INSERT INTO mine.outbox VALUES ('d', 'from a writer');
RESET ROLE;
SELECT dest, body FROM sent;
SELECT count(*) FROM mine.outbox;
-- It does not fire for what logical replication applies.
SET LOCAL session_replication_role = replica;
INSERT INTO mine.outbox VALUES ('d', 'from elsewhere');
SELECT count(*) FROM sent;
ROLLBACK;

-- The check of a new trigger calls no function: a superuser who restores a dump would call those of other roles.
CREATE TABLE told (payload text);
CREATE FUNCTION tell() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'called'; RETURN 'told'; END $$;
CREATE TRIGGER forward AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=public.tell()', 'body=payload');
BEGIN;
INSERT INTO told VALUES ('x');
SELECT dest FROM sent;
ROLLBACK;
DROP TABLE told;
DROP FUNCTION tell;

-- The check of a new trigger locks the table that it looks at, also if the name has come to mean another one.
CREATE SCHEMA meanwhile;
CREATE TABLE renamed (topic text, payload text);
CREATE TABLE meanwhile.renamed (topic text, payload text);
BEGIN;
CREATE FUNCTION look_elsewhere() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', 'meanwhile, public', true); END $$;
CREATE EVENT TRIGGER look_elsewhere ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION look_elsewhere();
CREATE TRIGGER forward AFTER INSERT ON renamed FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload');
SELECT mode FROM pg_locks WHERE relation = 'meanwhile.renamed'::regclass AND pid = pg_backend_pid();
ROLLBACK;
DROP TABLE meanwhile.renamed, renamed;
DROP SCHEMA meanwhile;

SET client_min_messages = warning;
DROP TABLE messages, typed, outboxevent, "OutboxMessage", published, "BillingOutboxData", outboxrecord, gone, events;
DROP FUNCTION busy;
DROP SCHEMA mine CASCADE;
SELECT outbox_revoke('regress_outbox_owner');
DROP ROLE regress_outbox_owner, regress_outbox_writer;
