# A dump is restored into a database that has the extension already, into another cluster
# with another Redis, and into one beside the source, with the same Redis: each database
# sends what was pending once, in order, and knows all records.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my ($redis, $second, $third, $fourth) = map { Redis->new } 1 .. 4;
my $main = Outbox->create('main', redis => $redis, extension => 0);
my $other = Outbox->create('other', redis => $second, extension => 0);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

sub handle
{
	my ($node, $database, $n, $dest) = @_;
	$node->sql(<<END, $database);
BEGIN;
SELECT outbox_begin('m$n', 'sales');
SELECT outbox_enqueue('$dest', '$n', message_id => 'id $n');
SELECT outbox_commit();
COMMIT;
END
	return;
}

sub ids { my ($server, $stream) = @_; return join ' ', map { $_->{id} } $server->entries($stream); }

sub restore
{
	my ($node, $database, $name, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->command_ok([ 'pg_restore', '--exit-on-error', @options, '--dbname', $node->connstr($database), $dump ], $name);
}

# Checks that a restored database has sent what was pending, to a Redis that no other database uses.
sub is_sent_once
{
	my ($node, $database, $server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok($node->wait_until_sent($database), "$database: all is sent");
	handle($node, $database, 20, 'd');
	$node->restart;
	handle($node, $database, 21, 'd');
	eventually { $server->count('d') == 5 } '... and what is enqueued later, also after a restart';
	ok($node->wait_until_sent($database), '... all of it');
	is(ids($server, 'd'), 'id 17 id 18 id 19 id 20 id 21', '... what was pending and what is new: once, in order, nothing else');
	is(ids($server, 'refused'), 'id 15', '... also what was deferred');
	is(ids($server, 'grave'), 'id dead', '... or dead');
	is($node->status('deferred, scheduled, dead', $database), '0|1|0', '... and what is scheduled waits');
	knows_all($node, $database);
	return;
}

sub knows_all
{
	my ($node, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(join(' ', grep { $node->sql("SELECT outbox_begin('m$_', 'sales')", $database) eq 'f' } 10 .. 19), join(' ', 10 .. 19),
		"$database: all records make duplicates");
	is($node->sql(q{BEGIN; SELECT outbox_begin('m99', 'sales'); ROLLBACK}, $database), 't', '... and only they');
	is($node->sql(q{SELECT name, retention FROM outbox.endpoint}, $database), 'sales|3 days', 'the endpoint is there');
	eventually { $node->status('problem IS NULL', $database) eq 't' } 'nothing is wrong';
	return;
}

$main->sql('CREATE DATABASE source');
$main->sql(q{CREATE EXTENSION outbox; SELECT outbox_create_endpoint('sales', retention => '3 days')}, 'source');
handle($main, 'source', $_, 'd') foreach 10 .. 14;
$redis->refuse('refused', 'grave');
$main->set('outbox.max_attempts' => 1);
$main->sql(q{SELECT outbox_enqueue('grave', 'x', message_id => 'id dead')}, 'source');
ok($main->poll_query_until('source', 'SELECT dead = 1 FROM outbox.status'), 'a message is dead');
$main->set('outbox.max_attempts' => 1000000);
handle($main, 'source', 15, 'refused');
handle($main, 'source', 16, 'd');
$main->sql(q{SELECT outbox_enqueue('later', 'x', deliver_at => now() + interval '1 day')}, 'source');
ok($main->poll_query_until('source', 'SELECT deferred = 1 AND scheduled = 1 AND pending = 1 FROM outbox.status'), 'some are sent, one is refused, one is scheduled');
eventually { $redis->count('d') == 6 } '... in Redis, too';
$redis->stop;
handle($main, 'source', $_, 'd') foreach 17 .. 19;
eventually { $main->status('windows', 'source') > 0 } 'Redis is away, and a window notes what was sent before';
$main->command_ok([ 'pg_dump', '--format=custom', '--file', $dump, $main->connstr('source') ], 'pg_dump, with messages pending');

# The extension exists, and a dispatcher is at work, before the data come.
$main->sql('CREATE DATABASE prepared');
$main->sql("ALTER DATABASE prepared SET outbox.redis_url = '@{[ $third->url ]}'");
$main->sql('CREATE EXTENSION outbox', 'prepared');
eventually { $main->status('dispatcher_state, redis_state', 'prepared') eq 'idle|up' } 'a database with the extension publishes';
restore($main, 'prepared', 'pg_restore --data-only', '--data-only');
is_sent_once($main, 'prepared', $third);

$other->sql('CREATE DATABASE own');
restore($other, 'own', 'pg_restore in another cluster');
is_sent_once($other, 'own', $second);

# The source goes on, with the same Redis as the restored database: both send.
$main->sql(q{SELECT outbox_discard('grave', 'id dead')}, 'source');
$other->sql('CREATE DATABASE beside');
$other->sql("ALTER DATABASE beside SET outbox.redis_url = '@{[ $redis->url ]}'");
restore($other, 'beside', 'pg_restore in another cluster, for the same Redis');
$redis->start;
$redis->accept('refused', 'grave');
ok($main->wait_until_sent('source'), 'the source sends');
ok($other->wait_until_sent('beside'), '... and so does the restored database');
my @ids = map { $_->{id} } $redis->entries('d');
is(join(' ', @ids[ 0 .. 5 ]), join(' ', map { "id $_" } 10 .. 14, 16), 'what was sent before');
my (%seen, @copies);
push @{ $copies[ $seen{$_}++ ] }, $_ foreach @ids[ 6 .. $#ids ];
is(scalar(@copies), 2, 'what was pending when it was dumped is sent by both');
is("@$_", 'id 17 id 18 id 19', '... once by each, in order') foreach @copies;
is(ids($redis, 'refused'), 'id 15 id 15', '... also what was deferred');
is(ids($redis, 'grave'), 'id dead', '... and what was dead is sent where it was not discarded');
knows_all($other, 'beside');
knows_all($main, 'source');

# From then on they are two databases.
handle($main, 'source', 30, 'of the source');
handle($other, 'beside', 30, 'of the other');
eventually { $redis->count('of the source') == 1 && $redis->count('of the other') == 1 } 'each sends its own';
$main->restart;
$other->restart;
handle($main, 'source', 31, 'of the source');
handle($other, 'beside', 31, 'of the other');
eventually { $redis->count('of the source') == 2 && $redis->count('of the other') == 2 } '... also after a restart';
is($redis->count('d'), 12, '... and nothing of before again');

# An application uses the new database before the data come.
$other->sql('CREATE DATABASE busy');
$other->sql("ALTER DATABASE busy SET outbox.redis_url = '@{[ $fourth->url ]}'");
restore($other, 'busy', 'pg_restore of the schema', '--section=pre-data');
my $load = $other->start_load(database => 'busy', rate => 200, args => [ '--define=n=0' ], scripts => [ <<'END' ]);
\set n :n + 1
SELECT outbox_enqueue('app', ':client_id :n', message_id => ':client_id :n');
END
sub sent_by_application { return $fourth->count('app'); }
eventually { sent_by_application() > 100 } 'an application is at work';
restore($other, 'busy', '... and pg_restore of the data beside it', '--section=data', '--section=post-data');
my $so_far = sent_by_application();
eventually { sent_by_application() > $so_far + 100 } '... which goes on';
$load->stop;
ok($other->wait_until_sent('busy'), 'all is sent');
is(ids($fourth, 'd'), 'id 17 id 18 id 19', '... what was restored once, in order');
is(ids($fourth, 'refused'), 'id 15', '... also what was deferred');
my @app = map { $_->{id} } $fourth->entries('app');
my %last;
$last{ (split ' ')[0] }++ foreach @app;
is_exactly_once(\@app, [ map { my $client = $_; map { "$client $_" } 1 .. $last{$client} } keys %last ], '... and each message of the application');
knows_all($other, 'busy');

done_testing();
