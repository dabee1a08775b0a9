-- Messages may be given a key; a destination may have partitions.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never

-- Every function that enqueues takes one.
BEGIN;
SELECT outbox_enqueue('keyed', 'text', message_id => 'm1', key => 'k1');
SELECT outbox_enqueue('keyed', '{}'::json, NULL, 'm2', NULL, 'k2');
SELECT outbox_enqueue('keyed', '{}'::jsonb, message_id => 'm3', key => 'k3');
SELECT outbox_enqueue('keyed', '\x00'::bytea, message_id => 'm4', key => 'k4');
SELECT outbox_enqueue('keyed', 'none', message_id => 'm5', key => NULL);
CALL outbox_enqueue_message('keyed', 'text', message_id => 'm6', key => 'k6');
SELECT outbox_enqueue_many('keyed', '{a,b,c}'::text[], message_ids => '{m7,m8,m9}', keys => '{k7,NULL,k9}');
SELECT message_id, key FROM outbox_enqueued();
ROLLBACK;

-- What a key cannot be.
SELECT outbox_enqueue('keyed', 'text', key => '');
SELECT outbox_enqueue('keyed', 'text', key => repeat('k', 1025));
BEGIN;
SELECT outbox_enqueue('keyed', 'text', message_id => 'long', key => repeat('k', 1024));
ROLLBACK;
SELECT outbox_enqueue_many('keyed', '{a,b}'::text[], keys => '{k}');
SELECT outbox_enqueue_many('keyed', '{a,b}'::text[], keys => '{k,""}');
SELECT outbox_enqueue('keyed', 'text', '{"key": "k"}');
SELECT outbox_send('keyed', 'text', key => '');

-- Tables of others: a part of outbox_forward(); the key of the row in outbox_capture().
CREATE TABLE messages (topic text, payload text, aggregate int);
CREATE TRIGGER forward AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=topic', 'body=payload', 'key=aggregate');
CREATE TABLE single (id int PRIMARY KEY, name text);
CREATE TABLE named (name text PRIMARY KEY);
CREATE TABLE dated (day date PRIMARY KEY);
CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b));
CREATE TABLE keyless (a int);
SELECT outbox_capture(name, 'keyed') FROM unnest('{single,named,dated,pairs,keyless}'::regclass[]) name;
BEGIN;
INSERT INTO messages VALUES ('keyed', 'a', 17), ('keyed', 'b', NULL);
INSERT INTO single VALUES (1, 'x');
UPDATE single SET id = 2;
DELETE FROM single;
INSERT INTO named VALUES ('with "quotes"'), (''), (repeat('ä', 600));
INSERT INTO dated VALUES ('2026-11-22');
INSERT INTO pairs VALUES (1, 'b');
INSERT INTO keyless VALUES (1);
TRUNCATE single;
SELECT left(encode(body, 'escape'), 20) AS body, left(key, 20) AS key, octet_length(convert_to(key, 'UTF8')) AS bytes FROM outbox_enqueued();
ROLLBACK;
DROP TABLE messages, single, named, dated, pairs, keyless;

-- Partitions.
SELECT outbox_set_destination('keyed', partitions => 0);
SELECT outbox_set_destination('keyed', partitions => 4097);
SELECT outbox_set_destination('keyed', partitions => 4096);
SELECT dest, stream, partitions FROM outbox.destinations WHERE dest = 'keyed';
SELECT outbox_set_destination('keyed', reset => '{partitions}');
SELECT dest, stream, partitions FROM outbox.destinations WHERE dest = 'keyed';
DELETE FROM outbox.destination WHERE dest = 'keyed';

-- What becomes of messages behind a dead one.
SELECT outbox_set_destination('keyed', on_dead => 'stop');
SELECT outbox_set_destination('keyed', on_dead => 'hold');
SELECT dest, on_dead, held FROM outbox.destinations WHERE dest = 'keyed';
SELECT outbox_set_destination('keyed', reset => '{on_dead}');
SELECT dest, on_dead, held FROM outbox.destinations WHERE dest = 'keyed';
DELETE FROM outbox.destination WHERE dest = 'keyed';
