-- Settings of destinations, which are optional; and functions about dead messages.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
\set SHOW_CONTEXT never

SELECT outbox_set_destination('plain');
SELECT outbox_set_destination('orders', 'shop:orders', 1000);
SELECT outbox_set_destination(dest => 'short', maxlen => 10);
SELECT outbox_set_destination('endless', maxlen => 0);
SELECT outbox_set_destination(dest => 'quo"ted', stream => '  spaces ');
SELECT * FROM outbox.destinations WHERE deferred + scheduled + dead = 0 ORDER BY dest COLLATE "C";
-- What is left out stays as it is, unless reset names it.
SELECT outbox_set_destination('orders', maxlen => 5);
SELECT outbox_set_destination('short', 'long');
SELECT dest, stream, maxlen FROM outbox.destinations WHERE dest IN ('orders', 'short') ORDER BY dest;
SELECT outbox_set_destination('orders', format => 'cloudevents', partitions => 4, on_dead => 'hold', reset => '{stream}');
SELECT outbox_set_destination('short', reset => '{stream,maxlen}');
SELECT outbox_set_destination('fresh', reset => '{partitions}');
SELECT dest, stream, maxlen, format, partitions, on_dead FROM outbox.destinations WHERE dest IN ('orders', 'short', 'fresh') ORDER BY dest;
SELECT outbox_set_destination('orders');
SELECT outbox_set_destination('orders', 'shop:orders', reset => '{format,on_dead,partitions}');
SELECT dest, stream, maxlen, format, partitions, on_dead FROM outbox.destinations WHERE dest = 'orders';
SELECT outbox_set_destination('orders', maxlen => 5, reset => '{stream,maxlen}');
\echo :SQLSTATE
SELECT outbox_set_destination('orders', reset => '{paused}');
SELECT outbox_set_destination('orders', reset => '{NULL}');

SELECT outbox_set_destination(NULL);
\echo :SQLSTATE
SELECT outbox_set_destination('');
\echo :SQLSTATE
SELECT outbox_set_destination(repeat(chr(8364), 341) || 'xx');
\echo :SQLSTATE
SELECT outbox_set_destination('outbox:fence:1');
\echo :SQLSTATE
SELECT outbox_set_destination('bad', '');
\echo :SQLSTATE
SELECT outbox_set_destination('bad', 'outbox:lease:1');
\echo :SQLSTATE
SELECT outbox_set_destination('bad', repeat('x', 1025));
\echo :SQLSTATE
SELECT outbox_set_destination('bad', maxlen => -1);
\echo :SQLSTATE
SELECT outbox_set_destination('bad', format => 'avro');
\echo :SQLSTATE

-- Pausing does not change the settings, and changing the settings does not resume.
SELECT outbox_pause('orders'), outbox_pause('new');
SELECT outbox_pause('orders');
SELECT outbox_set_destination('orders', 'shop:orders');
SELECT dest, stream, maxlen, paused FROM outbox.destinations WHERE paused ORDER BY dest;
SELECT outbox_resume('orders'), outbox_resume('new'), outbox_resume('never paused');
SELECT outbox_pause('');
\echo :SQLSTATE
SELECT outbox_pause('outbox:x');
\echo :SQLSTATE
-- Pausing everything: that is no destination, and resuming everything resumes only that.
SELECT outbox_pause('orders'), outbox_pause();
SELECT dest FROM outbox.destinations WHERE paused;
SELECT outbox_resume();
SELECT outbox_resume();
SELECT dest FROM outbox.destinations WHERE paused;
SELECT outbox_resume('orders');
BEGIN;
SELECT outbox_pause(NULL);
ROLLBACK;

-- dead messages: none here
SELECT count(*) FROM outbox.dead_letters;
SELECT outbox_retry(), outbox_retry('orders'), outbox_retry('orders', 'm1'), outbox_discard('orders', 'm1');

SELECT outbox_discard(NULL, 'm1');
\echo :SQLSTATE
SELECT outbox_discard('orders', NULL);
\echo :SQLSTATE

-- Callers are not affected.
SELECT outbox_pause('orders');
SELECT outbox_begin('paused-1') AS is_new, outbox_enqueue('orders', 'x', NULL, 'paused-1-out') AS id, outbox_commit() AS messages;
-- It was paused before, so it is not sent.
SELECT outbox_wait('paused-1', timeout => '50 ms');
SELECT outbox_resume('orders');

-- Names may come from columns of any collation.
CREATE TEMP TABLE named (dest text COLLATE "POSIX", stream text COLLATE "C", id text COLLATE "POSIX");
INSERT INTO named VALUES ('collated', 'collated stream', 'm1');
SELECT outbox_pause(dest), outbox_resume(dest), outbox_set_destination(dest, stream, format => 'plain', reset => '{maxlen}') FROM named;
SELECT outbox_retry(dest, id), outbox_retry(dest, stream), outbox_discard(dest, id), outbox_discard(dest, stream) FROM named;

-- replay: what was never sent is not sent again
SELECT outbox_replay('infinity');
SELECT outbox_replay('-infinity', 'nowhere');
SELECT outbox_replay(NULL);
\echo :SQLSTATE
DELETE FROM outbox.destination;
