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
cmp_ok($delays[8], '<=', 10_000, '... most of them soon') or diag "@delays";
ok($node->wait_until_sent, 'nothing is pending then');
is($node->status('scheduled'), 1, '... nor scheduled, but for the one of tomorrow');

# It reaches Redis like any other.
is($node->sql(q{BEGIN; SELECT FROM outbox_begin('m'); SELECT FROM outbox_enqueue('whole', 'b', '{"h": 1}', 'id', now() + interval '4 s'); SELECT FROM outbox_commit(); COMMIT;
	SELECT outbox_wait('m', timeout => '100 ms')}) =~ s/\n//gr, 'f', 'outbox_wait waits for it');
is($node->sql(q{SELECT outbox_wait('m', timeout => '3 min')}), 't', '... until it is there');
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

# Restarts: messages that become due after one, or during one.
schedule('across', 20);
schedule('missed', 16);
eventually { $node->status('scheduled') == 3 } 'two more are scheduled';
my $due = $node->sql(q{SELECT extract(epoch FROM next_attempt) FROM outbox.pending WHERE dest = 'missed'});
$node->stop('immediate');
wait_until { time > $due };
$node->start;
eventually { $redis->count('missed') == 1 } 'what became due while the server was down comes';
arrive_once('across', 1);

# Several messages that become due while the dispatcher sleeps arrive in the order of the
# calls, before new ones.
my $dispatcher = $node->dispatcher;
$node->sql(<<'END');
SELECT outbox_enqueue('order', body, deliver_at => clock_timestamp() + delay)
FROM (VALUES ('first', interval '16.0 s'), ('second', '15.6 s'), ('third', '15.8 s'), ('much later', '1 day')) v (body, delay)
END
eventually { $node->status('scheduled') == 5 } 'four more are scheduled';
kill 'STOP', $dispatcher;
$node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM outbox.deferred WHERE dest = 'order' AND next_attempt < now()});
$node->sql(q{SELECT outbox_enqueue('order', 'new')});
kill 'CONT', $dispatcher;
eventually { $redis->count('order') == 4 } 'they come';
is($redis->sequence('order'), 'first second third new', '... in the order of the calls, before what is new');
is($node->status('scheduled'), 2, '... and what has time waits');

done_testing();
