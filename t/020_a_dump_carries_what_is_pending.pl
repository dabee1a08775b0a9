# A dump contains what is not sent yet, all records, and the settings of endpoints and
# destinations; the restored database sends each message once and forgets no record.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);
my $folder = PostgreSQL::Test::Utils::tempdir();

sub handle
{
	my ($database, $n, $dest) = @_;
	$node->sql(<<END, $database);
BEGIN;
SELECT outbox_begin('m$n', 'sales');
SELECT outbox_enqueue('$dest', '\\x00$n'::bytea, '{"n": $n}', 'id $n');
SELECT outbox_commit();
COMMIT;
END
	return;
}

# The text of a dump, without a key that each has of its own.
sub dumped { return join '', grep { !/^\\(un)?restrict / } split /^/, PostgreSQL::Test::Utils::slurp_file("$folder/$_[0]"); }

sub ids { return join ' ', map { $_->{id} } $redis->entries($_[0]); }

$node->sql('CREATE DATABASE source');
$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_create_endpoint('sales', 'pessimistic', '3 days'); SELECT outbox_set_destination('alias', 'stream', 7)}, 'source');
handle('source', $_, 'd') foreach 10 .. 14;
ok($node->wait_until_sent('source'), 'messages that were sent before');

# A message that its destination refuses, and some that never reached Redis.
$redis->refuse('bad');
handle('source', 15, 'bad');
ok($node->poll_query_until('source', 'SELECT deferred = 1 FROM outbox.status'), 'a message is deferred');
handle('source', 16, 'd');
ok($node->poll_query_until('source', 'SELECT pending = 1 FROM outbox.status'), '... another is sent');
$redis->stop;
handle('source', $_, 'd') foreach 17 .. 19;
is($node->status('pending', 'source'), 4, 'messages are pending');
eventually { $node->status('windows', 'source') > 0 } '... in windows, which note that the others are not';

$node->command_ok([ 'pg_dump', '--file', "$folder/plain", $node->connstr('source') ], 'pg_dump');
$node->command_ok([ 'pg_dump', '--format=custom', '--file', "$folder/custom", $node->connstr('source') ],
	'pg_dump --format=custom');

# A role that is no superuser, but may read all tables, dumps the same.
$node->sql('CREATE ROLE backup LOGIN IN ROLE pg_read_all_data');
$node->command_ok([ 'pg_dump', '--username=backup', '--file', "$folder/backup", $node->connstr('source') ], 'pg_dump by a role of pg_read_all_data');
is(dumped('backup'), dumped('plain'), '... with everything');
$node->sql('DROP DATABASE source');

# Checks a restored database whose messages are all pending.
sub check
{
	my ($database) = @_;

	eventually { $node->status('pending', $database) == 4 } 'what was pending is pending';
	is(join(' ', grep { $node->sql("SELECT outbox_begin('m$_', 'sales')", $database) eq 'f' } 10 .. 19),
		join(' ', 10 .. 19), 'all records are there');
	is($node->sql('SELECT name, concurrency, retention FROM outbox.endpoint', $database), 'sales|pessimistic|3 days', 'so are the settings of endpoints');
	is($node->sql(q{SELECT stream, maxlen FROM outbox.destinations WHERE dest = 'alias'}, $database), 'stream|7', '... and of destinations');
	handle($database, 20, 'd');

	$redis->lose_data;
	$redis->start;
	eventually { $redis->count('d') == 4 && $redis->count('bad') == 1 } 'what was pending is sent';
	ok($node->wait_until_sent($database), '... all of it');
	is(ids('d'), 'id 17 id 18 id 19 id 20', '... in order, before what came later, and nothing else');
	is(ids('bad'), 'id 15', '... also what was deferred');
	my ($entry) = $redis->entries('d');
	is_deeply([ @$entry{ 'body', 'cause', 'headers' } ], [ "\0\x17", 'm17', { n => 17 } ], '... as it was enqueued');
	is(scalar($node->dispatchers($database)), 1, 'there is one dispatcher');

	$node->restart;
	handle($database, 21, 'd');
	eventually { $redis->count('d') == 5 } 'after a restart dispatch goes on';
	is(ids('d'), 'id 17 id 18 id 19 id 20 id 21', '... and nothing is sent again');
	$redis->stop;
	$node->sql("DROP DATABASE $database");
	return;
}

$node->sql('CREATE DATABASE plain');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', "$folder/out", '-f', "$folder/plain", $node->connstr('plain') ],
	'restored by psql');
check('plain');

$node->sql('CREATE DATABASE custom');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--jobs=2', '--dbname', $node->connstr('custom'), "$folder/custom" ],
	'restored by pg_restore');
check('custom');

# The dispatcher runs before the data come, as it may do by chance above.
$node->sql('CREATE DATABASE slow');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--section=pre-data', '--dbname', $node->connstr('slow'), "$folder/custom" ],
	'restored by pg_restore: the schema');
eventually { $node->status('dispatcher_state', 'slow') eq 'waiting for Redis' } '... which gets a dispatcher';
$node->command_ok([ 'pg_restore', '--exit-on-error', '--section=data', '--section=post-data', '--dbname', $node->connstr('slow'), "$folder/custom" ],
	'... and then the data');
check('slow');

done_testing();
