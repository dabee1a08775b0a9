# What is text in SQL is UTF-8 in Redis, whatever the database's encoding.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);
my $utf8 = "M\xc3\xbcller";
my $latin1 = "M\xfcller";

$node->sql(q{CREATE DATABASE western ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'});
$node->sql(q{CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'});
$node->sql('CREATE EXTENSION outbox', 'western');

# psql talks in the database's encoding here.
$node->sql(<<END, 'western');
BEGIN;
SELECT outbox_begin('in $latin1');
SELECT outbox_enqueue('text $latin1', '$latin1', '{"$latin1": "h $latin1"}', 'id $latin1');
SELECT outbox_enqueue('json', '{"name": "$latin1"}'::json);
SELECT outbox_enqueue('jsonb', '{"name": "$latin1"}'::jsonb);
SELECT outbox_enqueue('bytea', '\\x4dfc'::bytea);
SELECT outbox_commit();
COMMIT;
END

eventually { $redis->count('bytea') == 1 } 'messages from a LATIN1 database arrive';
my ($entry) = $redis->entries("text $utf8");
is($entry->{body}, $utf8, 'text body, and the destination');
is($entry->{id}, "id $utf8", 'message id');
is($entry->{cause}, "in $utf8", 'id of the incoming message');
is_deeply($entry->{headers}, { $utf8 => "h $utf8" }, 'headers');
is(($redis->bodies('json'))[0], qq({"name": "$utf8"}), 'json body');
is(($redis->bodies('jsonb'))[0], qq({"name": "$utf8"}), 'jsonb body');
is(($redis->bodies('bytea'))[0], "\x4d\xfc", 'a bytea body stays as it is');

# Tables that send
$node->sql(<<"END", 'western');
CREATE TABLE captured ("$latin1" text);
SELECT outbox_capture('captured', 'captured');
INSERT INTO captured VALUES ('$latin1');
CREATE TABLE forwarded ("$latin1" text);
CREATE TRIGGER forward AFTER INSERT ON forwarded FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''forwarded''', 'body="$latin1"', 'header.$latin1="$latin1"');
INSERT INTO forwarded VALUES ('$latin1');
END
eventually { $redis->count('forwarded') == 1 } 'rows of tables that send arrive';
like(($redis->bodies('captured'))[0], qr/"after":\{"$utf8":"$utf8"\}/, 'a captured row');
($entry) = $redis->entries('forwarded');
is_deeply([ $entry->{body}, $entry->{headers} ], [ $utf8, { $utf8 => $utf8 } ], 'a forwarded row');

is($node->sql("SELECT outbox_begin('in $latin1')", 'western'), 'f', 'the incoming message is recognised');
is($node->sql("SET client_encoding = 'UTF8'; SELECT outbox_begin('in $utf8')", 'western'), 'f',
	'... also by a client that talks UTF-8');
is($node->sql("SET client_encoding = 'UTF8'; SELECT msgid FROM outbox.records", 'western'), "in $utf8",
	'... and shown');

# The key of a captured row is cut between characters also where the database knows none.
$node->sql(<<"END", 'ascii');
CREATE EXTENSION outbox;
CREATE TABLE captured (name text PRIMARY KEY);
SELECT outbox_capture('captured', 'cut');
INSERT INTO captured VALUES (repeat('$utf8', 200));
END
eventually { $redis->count('cut') == 1 } 'a row with a long key arrives from an SQL_ASCII database';

# A dump of a database with another encoding may be restored there. What cannot be converted stops nothing.
$node->sql("INSERT INTO outbox.destination (dest, stream, partitions, on_dead) VALUES ('to $latin1', 'in $latin1', 2, 'hold')", 'ascii');
$node->sql(q{SELECT outbox_set_destination('spread', partitions => 1)}, 'ascii');
$node->sql(q{SELECT outbox_enqueue('spread', 'x')}, 'ascii');
eventually { $redis->count('spread:0') == 1 } 'with a destination whose name cannot be converted, others are sent';
like($node->sql_error("SELECT outbox_enqueue('to $latin1', 'x')", 'ascii'), qr/^22021/, '... and no message is taken for it');
my $dispatcher = $node->dispatcher('ascii');
$node->sql("INSERT INTO outbox.log_0 (id, tx, enqueued_at, database, message_id, dest, body, cause) SELECT 1, '3', now(), oid, 'restored', 'restored', 'x', 'in $latin1' FROM pg_database WHERE datname = 'ascii'", 'ascii');
$node->sql(q{SELECT outbox_enqueue('d', 'x')}, 'ascii');
eventually { $redis->count('d') == 1 } '... nor does a restored message whose cause cannot be converted';
like($node->sql('SELECT dest, last_error FROM outbox.deferred', 'ascii'), qr/^restored\|invalid byte sequence/, '... which is deferred');
is($node->dispatcher('ascii'), $dispatcher, '... by the same dispatcher');

$redis->stop;
$node->sql("SELECT outbox_enqueue('text $latin1', 'x', '{\"$latin1\": 1}', 'id $latin1')", 'western');
is($node->sql("SET client_encoding = 'UTF8'; SELECT dest, message_id, headers FROM outbox.pending", 'western'),
	qq(text $utf8|id $utf8|{"$utf8": 1}), 'a pending message is shown in the encoding of the client');

done_testing();
