# DROP DATABASE, CREATE DATABASE ... TEMPLATE, RENAME, SET TABLESPACE and DROP EXTENSION
# work at once, without any preparation: while the dispatcher is idle, under load, and
# while Redis hangs for long.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.connect_timeout = '60s'
outbox.command_timeout = '120s'
outbox.poll_interval = '1h'
END
my $tablespace = PostgreSQL::Test::Utils::tempdir();
$node->sql("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");

my $script = <<'END';
\set n random(1, 9000000000000000)
BEGIN;
SELECT outbox_begin('m' || :n);
SELECT outbox_enqueue('load', :n::text);
SELECT outbox_commit();
COMMIT;
END

# Fails its transaction if it ever sees two dispatchers of one database.
my $watch = $node->start_load(clients => 1, rate => 50, scripts => [ <<'END' ]);
SELECT 1 / (count(*) = 0)::integer FROM (
	SELECT FROM pg_stat_activity WHERE backend_type LIKE 'outbox dispatcher%'
	GROUP BY datid HAVING count(*) > 1) twice;
END

sub quickly
{
	my ($name, $sql, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $took = seconds { eval { $node->sql($sql, $database) } };
	is($@, '', $name);    # PostgreSQL gives up after five seconds, Redis hangs for two minutes
	cmp_ok($took, '<', 60, '... at once');
	return;
}

# Creates databases with the extension and a message each.
sub create_databases
{
	foreach my $database (@_)
	{
		$node->sql("CREATE DATABASE $database");
		$node->sql('CREATE EXTENSION outbox', $database);
		enqueue($database, 'first');
	}
	return;
}

sub enqueue
{
	my ($database, $body, $dest) = @_;
	$dest //= $database;
	$node->sql("BEGIN; SELECT outbox_begin('$body'); SELECT outbox_enqueue('$dest', '$body'); SELECT outbox_commit(); COMMIT",
		$database);
	return;
}

sub arrives
{
	my ($dest, $bodies, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { $redis->count($dest) >= split(' ', $bodies) } $name;
	is($redis->sequence($dest), $bodies, '... once');
	return;
}

# Does what an administrator may do. The four databases exist and have dispatchers.
sub come_and_go
{
	my ($state) = @_;

	quickly("$state: DROP DATABASE", 'DROP DATABASE dropped');
	quickly("$state: CREATE DATABASE ... TEMPLATE", 'CREATE DATABASE copy TEMPLATE original');
	quickly("$state: RENAME", 'ALTER DATABASE old RENAME TO new');
	quickly("$state: SET TABLESPACE", 'ALTER DATABASE new SET TABLESPACE elsewhere');
	quickly("$state: DROP EXTENSION", 'DROP EXTENSION outbox', 'bare');
	quickly("$state: CREATE EXTENSION again", 'CREATE EXTENSION outbox', 'bare');
	return;
}

# Each database that is left dispatches its own messages.
sub all_dispatch
{
	my ($state, $old) = @_;

	enqueue('original', 'second');
	enqueue('copy', 'third', 'copy');
	enqueue('new', 'second', 'old');
	enqueue('bare', 'second');
	arrives('original', 'first second', "$state: the original of a copy goes on");
	arrives('copy', 'third', 'so does the copy');
	is($node->sql(q{SELECT outbox_begin('first')}, 'copy'), 'f', '... with the records of the original');
	isnt($node->sql('SELECT id FROM outbox.instance', 'copy'), $node->sql('SELECT id FROM outbox.instance', 'original'),
		'... and a fence of its own');
	arrives('old', 'first second', 'so does the renamed database');
	arrives('bare', $old, 'so does the new extension');
	is(scalar($node->dispatchers($_)), 1, "one dispatcher for $_") foreach 'original', 'copy', 'new', 'bare';
	return;
}

sub clean_up
{
	my ($state) = @_;

	quickly("$state: DROP DATABASE $_", "DROP DATABASE $_") foreach 'original', 'copy', 'new', 'bare';
	$redis->cli('DEL', 'dropped', 'original', 'copy', 'old', 'bare');
	return;
}

my @databases = ('dropped', 'original', 'old', 'bare');

create_databases(@databases);
arrives($_, 'first', "a database created this moment is found: $_") foreach @databases;
come_and_go('idle');
all_dispatch('idle', 'first second');
clean_up('idle');

# Under load: in another database until the end, in the database itself until just before.
create_databases(@databases);
arrives($_, 'first', "under load: $_") foreach @databases;
my $load = $node->start_load(clients => 4, rate => 200, scripts => [$script]);
my @loads = map { $node->start_load(clients => 2, rate => 100, database => $_, scripts => [$script]) } @databases;
my $count = $redis->count('load');
wait_until { $redis->count('load') > $count + 500 };
$_->stop foreach @loads;
come_and_go('under load');
all_dispatch('under load', 'first second');
clean_up('under load');

# DROP EXTENSION while clients of this database are at work: they fail, it does not, and
# there is no deadlock.
create_databases('bare');
arrives('bare', 'first', 'before its extension is dropped');
my $sent = 'first';
foreach my $round (1 .. 4)
{
	my $own = $node->start_load(clients => 4, database => 'bare', scripts => [$script], args => ['--verbose-errors']);
	$count = $redis->count('load');
	wait_until { $redis->count('load') > $count + 100 };
	quickly('DROP EXTENSION under the feet of its clients', 'DROP EXTENSION outbox', 'bare');
	$own->finish;
	unlike($own->{error}, qr/deadlock/, '... without a deadlock');
	quickly('... and CREATE EXTENSION', 'CREATE EXTENSION outbox', 'bare');
	enqueue('bare', "again$round");
	$sent .= " again$round";
	arrives('bare', $sent, '... which dispatches');
}
quickly('DROP DATABASE after all that', 'DROP DATABASE bare');
$redis->cli('DEL', 'bare');
# The launcher is replaced; the dispatchers stay.
create_databases('bare');
arrives('bare', 'first', 'before the launcher ends');
my @before = map { $node->dispatchers($_) } 'postgres', 'bare';
$node->sql(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'outbox launcher'});
create_databases('later');
arrives('later', 'first', 'the next launcher finds a new database');
is(join(' ', map { $node->dispatchers($_) } 'postgres', 'bare'), "@before", '... and starts no second dispatcher elsewhere');
quickly('... and DROP DATABASE', "DROP DATABASE $_") foreach 'bare', 'later';
$redis->cli('DEL', 'bare', 'later');
# A session looks at a copy before the launcher does.
create_databases('original');
arrives('original', 'first', 'before the launcher is late');
my $launcher = $node->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'});
kill 'STOP', $launcher;
$node->sql('CREATE DATABASE copy TEMPLATE original');
is($node->status('dispatcher_pid IS NULL', 'copy'), 't', 'the launcher is late: a copy has no dispatcher yet, and a session sees that');
kill 'CONT', $launcher;
eventually { $node->dispatchers('copy') } '... then it has one';
quickly('... and DROP DATABASE', "DROP DATABASE $_") foreach 'copy', 'original';
$redis->cli('DEL', 'original');
$load->stop;
$node->wait_until_sent;

# While Redis hangs. What is pending in the original is sent by the original.
create_databases(@databases);
arrives($_, 'first', "before Redis hangs: $_") foreach @databases;
$redis->pause;
enqueue($_, 'second') foreach 'dropped', 'bare', 'postgres';
$node->sql(q{SELECT outbox_enqueue('original', 'second')}, 'original');
$node->sql(q{SELECT outbox_enqueue('old', 'second')}, 'old');
# One that was just renewing the lease, or moving the fence, hangs there and opens no window.
foreach (@databases)
{
	ok($node->poll_query_until($_, q{SELECT windows > 0 OR oldest_pending > '5 s' FROM outbox.status}), "$_ is talking to a Redis that hangs");
}
come_and_go('Redis hangs');
enqueue('bare', 'third');
$redis->resume;
enqueue('copy', 'third');
arrives('original', 'first second', 'Redis is back: the original sends what was pending');
arrives('old', 'first second', 'so does the renamed database');
eventually { $redis->count('copy') == 1 } 'the copy sends its own';
eventually { grep { $_ eq 'third' } $redis->bodies('bare') } 'so does the new extension';
is($redis->count('original'), 2, 'nothing is sent twice');

$redis->pause;
enqueue($_, 'fourth') foreach 'original', 'copy', 'new', 'bare';
clean_up_hanging();
$redis->resume;

sub clean_up_hanging
{
	quickly("Redis hangs: DROP DATABASE $_", "DROP DATABASE $_") foreach 'original', 'copy', 'new', 'bare';
	return;
}

$watch->stop;
unlike($watch->{error}, qr/division by zero/, 'there never were two dispatchers of one database');

done_testing();
