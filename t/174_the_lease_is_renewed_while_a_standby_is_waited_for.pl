# A server that waits for its synchronous standby keeps its lease, however long that
# takes, and sends nothing meanwhile.

use strict;
use warnings FATAL => 'all';

use IPC::Run ();
use Outbox;
use PostgreSQL::Test::Utils ();
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
# Where other processes take the processor, Redis may not answer within the second of other
# tests, and cleaning may come while the standby is waited for: then there is no lease at all.
my $node = Outbox->create('main', redis => $redis, init => { allows_streaming => 1 },
	conf => "outbox.command_timeout = '60s'\noutbox.cleanup_interval = -1");

sub waits
{
	return wait_until
	{
		$node->sql(q{SELECT count(*) FROM pg_stat_activity
			WHERE backend_type LIKE 'outbox dispatcher%' AND wait_event = 'SyncRep'}) == 1;
	};
}

# The session that enqueues need not wait.
sub enqueue
{
	my ($call) = @_;
	$node->sql("SET synchronous_commit = local; SELECT outbox_enqueue($call)");
	return;
}

# How often a dispatcher has connected.
sub connections { return ($redis->command('INFO', 'commandstats') =~ /cmdstat_script\|load:calls=(\d+)/)[0]; }

sub life { return $redis->command('PTTL', $redis->key('lease')); }

# The lease lives for 10 seconds, and is renewed after three.
sub is_renewed
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until { life() < 9000 };
	eventually { life() > 9000 } $name;
	return;
}

sub arrives
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->sequence('d') eq $expected } $name;
	return;
}

enqueue(q{'d', 'before'});
arrives('before', 'without a standby it is sent');
my $dispatcher = $node->dispatcher;

# With new settings the dispatcher closes its link. It connects again before it opens a window:
# one that waits without a link would leave the lease to run out.
kill 'STOP', $dispatcher;
my $connections = connections();
$node->require_missing_standby;
enqueue(q{'d', 'window'});
kill 'CONT', $dispatcher;
ok(waits(), 'the commit of a window waits for the standby');
cmp_ok(connections(), '>', $connections, '... of a dispatcher that has connected again');
is_renewed('the lease is renewed');
is_renewed('... and again');
is($redis->count('d'), 1, 'nothing is sent meanwhile');
ok(waits(), '... and the dispatcher waits still');
$node->set(synchronous_standby_names => '');
arrives('before window', 'without a standby it is sent');

# A page of messages is in memory, and the standby is waited for.
# The connection is closed before: otherwise a batch may be on its way to Redis already.
$node->set('outbox.command_timeout' => '1s');
$redis->pause;
eventually { $node->status('redis_state') eq 'down' } 'Redis is away';
$node->set('outbox.command_timeout' => '60s');
$node->sql(q{SET synchronous_commit = local; BEGIN; SELECT outbox_enqueue('d', 'first');
	SELECT outbox_enqueue('d', 'scheduled', deliver_at => clock_timestamp() + interval '1 hour');
	SELECT outbox_enqueue('d', 'last'); COMMIT});
eventually { $node->status('windows') > 0 } 'a window is opened all the same';
eventually { $node->sql('SELECT sum(messages) FROM (SELECT max(messages) AS messages FROM outbox.window_0) w') == 5 } '... with all of them';
$node->require_missing_standby;
$redis->resume;
ok(waits(), 'the commit of what is kept back waits for the standby');
is_renewed('the lease is renewed');
is($redis->count('d'), 2, 'nothing is sent meanwhile');

$node->set(synchronous_standby_names => '');
arrives('before window first last', 'the page is sent as it was made');
is($node->status('scheduled'), 1, '... but for the message that was kept back');
is($node->dispatcher, $dispatcher, 'all by one dispatcher');

# From here on there is a standby, which hangs at times: unlike a setting that is changed,
# this does not end what the dispatcher is doing.
my $standby = IPC::Run::start(
	[ 'pg_receivewal', '-d', $node->connstr('postgres') . ' application_name=standby', '-D', PostgreSQL::Test::Utils::tempdir, '--synchronous' ],
	'>', '/dev/null', '2>', \my $complaints);
END { local $? = $?; $standby->kill_kill if $standby }
$node->set(synchronous_standby_names => 'standby', 'outbox.batch_size' => 1);

# The same while a batch is under way: its answer is read first.
$node->sql('SELECT outbox_pause()');
eventually { $node->status('dispatcher_state') eq 'paused' } 'all is paused';
$node->sql(q{BEGIN; SELECT outbox_enqueue('d', 'third');
	SELECT outbox_enqueue('d', 'scheduled', deliver_at => clock_timestamp() + interval '1 hour');
	SELECT outbox_enqueue('d', 'fifth'); COMMIT});
eventually { $node->status('windows') == 1 } 'a window is opened all the same';
ok($node->poll_query_until('postgres', q{SELECT flush_lsn >= pg_current_wal_flush_lsn() FROM pg_stat_replication}), '... which the standby has');
$standby->signal('STOP');
$node->sql('SET synchronous_commit = local; SELECT outbox_resume()');
arrives('before window first last third', 'a batch is sent');
ok(waits(), 'the commit of what is kept back waits for the standby');
is_renewed('the lease is renewed');
is($redis->count('d'), 5, 'nothing is sent meanwhile');
$standby->signal('CONT');
arrives('before window first last third fifth', 'the rest is sent');
is($node->status('scheduled'), 2, '... but for the message that was kept back');

# The same with a window that is opened while a distant Redis has not answered yet.
my $proxy = Proxy->new($redis);
$proxy->delay(200);
$node->set('outbox.redis_url' => $proxy->url);
$node->sql(q{SELECT outbox_enqueue('d', 'far')});
ok($node->wait_until_sent, 'Redis is far away');
$proxy->most_under_way;
$node->sql(q{SELECT outbox_enqueue('d', 'away')});
eventually { $proxy->most_under_way > 0 } 'a message is on its way';
$standby->signal('STOP');
enqueue(q{'d', 'ahead'});
ok(waits(), 'the commit of the next window waits for the standby');
is_renewed('the lease is renewed');
is(scalar(grep { $_ eq 'ahead' } $redis->bodies('d')), 0, 'it is not sent meanwhile');
$standby->signal('CONT');
$node->set('outbox.redis_url' => $redis->url);
arrives('before window first last third fifth far away ahead', 'the rest is sent');
is($node->dispatcher, $dispatcher, 'all by one dispatcher');

# A dispatcher that waits can be stopped.
$node->require_missing_standby;
enqueue(q{'d', 'stop'});
ok(waits(), 'a wait again');
$node->sql("SELECT pg_terminate_backend($dispatcher)");
eventually { $node->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $dispatcher") == 0 } 'a dispatcher that waits can be stopped';
ok(waits(), 'its successor waits');
is($redis->count('d'), 9, '... and has sent nothing');
$node->set(synchronous_standby_names => '');
arrives('before window first last third fifth far away ahead stop', 'without a standby all is sent, none twice');

done_testing();
