# With a synchronous standby a message is sent only when the standby has it, also if its
# own transaction did not wait for that, and also if the dispatcher ends meanwhile.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis,
	init => { allows_streaming => 1 }, conf => 'restart_after_crash = on');

# The transaction does not wait for the standby.
sub enqueue
{
	my ($body) = @_;
	$node->sql("SET synchronous_commit = local; SELECT outbox_enqueue('d', '$body')");
	return;
}

# The process id of a dispatcher that waits for the standby.
sub waiting
{
	my $pid;
	wait_until
	{
		$pid = eval { $node->sql(q{SELECT pid FROM pg_stat_activity
			WHERE backend_type LIKE 'outbox dispatcher%' AND wait_event = 'SyncRep'}) };
	};
	return $pid;
}

sub arrives
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->sequence('d') eq $expected } $name;
	return;
}

sub is_a_problem
{
	my ($kinds, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $node->sql('SELECT kind FROM outbox.problems') eq $kinds } $name;
	return;
}

enqueue('before');
arrives('before', 'without a standby it is sent at once');

$node->require_missing_standby;
enqueue('waits');
my $pid = waiting();
ok($pid, 'the dispatcher waits for the standby');
is($node->status('pending'), 1, '... the message is pending');
is_a_problem('standby', '... and outbox.problems says why');

$node->sql("SELECT pg_terminate_backend($pid)");
wait_until { $node->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 };
my $next = waiting();
isnt($next, $pid, 'terminated, it has a successor');
is($redis->count('d'), 1, '... which has not sent it, and waits');

$node->sql("SELECT pg_cancel_backend($next)");
enqueue('and this');
is(waiting(), $next, 'a cancel does not end the wait');
is($redis->count('d'), 1, '... nor sends anything');

$node->kill_process($next);
wait_until { $node->answers };
$pid = waiting();
isnt($pid, $next, 'killed, it has a successor');
is($redis->count('d'), 1, '... which waits');

$node->stop('immediate');
$node->start;
enqueue('after the start');
ok(waiting(), 'after a crash of the server the dispatcher waits');
is($redis->count('d'), 1, '... and has sent nothing');
is_a_problem('standby', '... which is said, too');

$redis->cli('FLUSHALL');
ok(waiting(), 'a Redis that was emptied');
is($redis->count('d'), 0, '... gets nothing');

$node->sql('ALTER SYSTEM RESET synchronous_standby_names');
$node->reload;
arrives('before waits and this after the start', 'without a standby all is sent, in order, none twice');
is_a_problem('', '... which ends the problem');

# With a real standby.
my $standby = $node->start_standby;
$node->set(synchronous_standby_names => 'standby');
enqueue('with the standby');
arrives('before waits and this after the start with the standby', 'a standby that confirms');
$standby->stop;
enqueue('away');
ok(waiting(), 'a standby that went away is waited for');
is($redis->count('d'), 5, '... nothing is sent');
is_a_problem('standby', '... which is a problem');
$standby->start;
arrives('before waits and this after the start with the standby away', 'it comes back and all is sent');
is_a_problem('', '... and nothing is wrong any more');

# What is noted when dispatch is turned off waits for no standby, so Redis is told of it only when the
# standby has it: else that one would not know what was sent.
my $fence_key = 'outbox:fence:' . $node->sql('SELECT id FROM outbox.instance');
sub windows { return $_[0]->sql(join ' UNION ALL ', map { "SELECT number || ' ' || uuid FROM outbox.window_$_" } 0 .. 3); }
enqueue('at last');
arrives('before waits and this after the start with the standby away at last', 'another message is sent');
$standby->stop('immediate');
sub waits_already { return $node->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'standby'}) == 1; }
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' || waits_already() } 'the standby is away, and dispatch is turned off';
$node->set('outbox.dispatch' => 'on');
eventually { $node->status('redis_state') eq 'up' || waits_already() } '... and on again';
$node->stop('immediate');
$standby->start;
my ($fence) = $redis->command('GET', $fence_key) =~ /^(\d+ \S+)/;
ok((grep { $_ eq $fence } split /\n/, windows($standby)), 'the fence names a window that the standby has');
$standby->promote;
$standby->set(synchronous_standby_names => '');
$standby->sql(q{SELECT outbox_enqueue('d', 'promoted')});
eventually { ($redis->bodies('d'))[-1] eq 'promoted' } 'which takes over';
is(join(' ', $redis->bodies('d')), 'before waits and this after the start with the standby away at last promoted', '... and sends nothing twice');

done_testing();
