# A message with deliver_at arrives at that time, or soon after it. The id of its entry
# tells when Redis got it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# Schedules messages so many seconds from now; their bodies are their times in milliseconds.
sub schedule
{
	my ($dest, @delays) = @_;
	$node->sql(<<END);
SELECT outbox_enqueue('$dest', floor(extract(epoch FROM t) * 1000)::bigint::text, deliver_at => t)
FROM (SELECT clock_timestamp() + delay * interval '1 s' FROM unnest('{@{[ join ',', @delays ]}}'::float[]) delay) v (t)
END
	return;
}

# How many milliseconds after its time each message of a stream arrived.
sub delays
{
	my ($dest) = @_;
	return map { (split /-/, $_->{entry})[0] - $_->{body} } $redis->entries($dest);
}

# Returns the delays, sorted.
sub arrive_once
{
	my ($dest, $count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count($dest) >= $count } "$dest: all come";
	my @delays = sort { $a <=> $b } delays($dest);
	is(scalar(grep { $_ < 0 } @delays), 0, '... none before its time');
	is(scalar(@delays), $count, '... none twice');
	return @delays;
}

schedule('tomorrow', 86400);
eventually { $node->status('scheduled') == 1 } 'outbox.status counts what is scheduled';
is($node->sql(q{SELECT DISTINCT state, dest, next_attempt > enqueued_at FROM outbox.pending WHERE state = 'scheduled'}), 'scheduled|tomorrow|t', '... and outbox.pending shows it');
eventually { $node->status('problem IS NULL') eq 't' } '... which is no problem';
schedule('in time', map { $_ / 10 } reverse 30 .. 45);
my @delays = arrive_once('in time', 16);

# Not all, and not at once, for the machine may be busy with other things; but not when it is
# next cleaned, a minute later, either.
cmp_ok($delays[8], '<=', 40_000, '... most of them soon') or diag "@delays";
ok($node->wait_until_sent, 'nothing is pending then');
is($node->status('scheduled'), 1, '... nor scheduled, but for the one of tomorrow');

# It reaches Redis like any other.
$node->sql(q{BEGIN; SELECT outbox_begin('m'), outbox_enqueue('whole', 'b', '{"h": 1}', 'id', now() + interval '4 s'), outbox_commit(); COMMIT});
is($node->sql(q{SELECT outbox_wait('m', timeout => '3 min')}), 't', 'outbox_wait waits for it');
is($redis->count('whole'), 1, '... until it is there');
my ($entry) = $redis->entries('whole');
is_deeply([ @$entry{qw(id body cause headers)} ], [ 'id', 'b', 'm', { h => 1 } ], 'it comes as it was enqueued');

# Only if it is committed.
$node->sql(q{BEGIN; SELECT outbox_enqueue('undone', 'no', deliver_at => clock_timestamp() + interval '0.5 s'); ROLLBACK});
$node->sql(q{BEGIN; SAVEPOINT s; SELECT outbox_enqueue('undone', 'no', deliver_at => clock_timestamp() + interval '0.5 s'); ROLLBACK TO s;
	SELECT outbox_enqueue('undone', 'yes', deliver_at => clock_timestamp() + interval '0.6 s'); COMMIT});
eventually { $redis->count('undone') > 0 } 'a scheduled message comes';
is($redis->sequence('undone'), 'yes', '... but none that was rolled back');

# A time in the past means now.
my $session = $node->session;
$session->query_safe(q{SELECT outbox_enqueue('late', 'past', deliver_at => 'epoch'), outbox_enqueue('late', 'now', deliver_at => now())});
eventually { $redis->count('late') == 2 } 'what is scheduled for a time that has passed comes';
is($redis->sequence('late'), 'past now', '... nor changes the order');
$session->quit;

like($node->sql_error(q{SELECT outbox_enqueue('d', 'x', deliver_at => 'infinity')}), qr{^22023: deliver_at must be finite}, 'infinity is refused');

# Restarts: messages that become due after one, or during one. On a machine that is too busy to
# be done before that they get more time.
my ($lead, $missed, $across) = (2);
wait_until
{
	$lead *= 2;
	($missed, $across) = map { "$_, $lead s" } 'missed', 'across';
	schedule($across, $lead + 4);
	schedule($missed, $lead);
	my $until = time + $lead;
	wait_until { $node->status('scheduled') == 3 || time > $until };
	$node->stop('immediate');
	return 1 if $redis->count($missed) == 0;
	$node->start;
	$node->wait_until_sent;
	wait_until { $node->status('scheduled') == 1 };
	return 0;
};
my $due = time + $lead;
wait_until { time > $due };
$node->start;
eventually { $redis->count($missed) == 1 } 'what became due while the server was down comes';
arrive_once($across, 1);

# Several messages that become due while the dispatcher sleeps arrive in the order of the
# calls, before new ones.
schedule('next year', 365 * 86400);
eventually { $node->status('scheduled') == 2 } 'another one has much time';
my $dispatcher = $node->dispatcher;
my $dest;
$lead = 2;
wait_until
{
	$lead *= 2;
	$dest = "order, $lead s";
	$node->sql(<<"END");
SELECT outbox_enqueue('$dest', body, deliver_at => clock_timestamp() + interval '$lead s' + delay)
FROM (VALUES ('first', interval '0.4 s'), ('second', '0.0 s'), ('third', '0.2 s')) v (body, delay)
END
	my $until = time + $lead;
	wait_until { $node->status('scheduled') == 5 || time > $until };
	kill 'STOP', $dispatcher;
	return 1 if $node->sql("SELECT count(*) FROM outbox.deferred WHERE dest = '$dest' AND state = 'scheduled'") == 3;
	kill 'CONT', $dispatcher;
	wait_until { $node->status('scheduled') == 2 };
	return 0;
};
$node->poll_query_until('postgres', qq{SELECT count(*) = 3 FROM outbox.deferred WHERE dest = '$dest' AND next_attempt < now()});
$node->sql(qq{SELECT outbox_enqueue('$dest', 'new')});
kill 'CONT', $dispatcher;
eventually { $redis->count($dest) == 4 } 'they come';
is($redis->sequence($dest), 'first second third new', '... in the order of the calls, before what is new');
is($node->status('scheduled'), 2, '... and what has time waits');

done_testing();
