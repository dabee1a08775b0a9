# A segment of the log to which a forgotten transaction has written is kept, while later
# ones are emptied: there is a gap between the windows that are kept. A Redis that lost
# its data gets what comes after the gap.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
restart_after_crash = on
END
my $n = 0;

# Sends messages until the condition comes true.
sub send_until(&$)
{
	my ($condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually { $node->sql("SELECT outbox_enqueue('d', '@{[ ++$n ]}')"); $condition->() } $name;
}

sub is_in_order_and_goes_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $receipt = ++$n;

	$node->sql("SELECT outbox_enqueue('d', '$receipt')");
	eventually { grep { $_ eq $receipt } $redis->bodies('d') } "$name: dispatch goes on";
	ok($node->wait_until_sent, '... all is sent');
	my @bodies = $redis->bodies('d');
	is("@bodies", join(' ', sort { $a <=> $b } @bodies), '... in order');
	my %times;
	$times{$_}++ foreach @bodies;
	is(scalar(grep { $_ > 1 } values %times), 0, '... none twice');
	return @bodies;
}

# How many windows are missing between the oldest one and the newest one.
sub gap
{
	return $node->sql(<<END);
SELECT max(number) - min(number) + 1 - count(DISTINCT number)
FROM (@{[ join ' UNION ALL ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3 ]}) w
END
}

send_until { $redis->count('d') >= 20 } 'messages are sent';
$redis->stop;
$redis->save_data;
$redis->start;
my $writer = $node->session;
$writer->query_safe('BEGIN');
$writer->query_safe(q{SELECT outbox_enqueue('forgotten', 'x')});
my $segment = $node->sql(q{SELECT substr(relation::regclass::text, 12) FROM pg_locks WHERE mode = 'RowExclusiveLock' AND relation::regclass::text ~ '^outbox\.log_\d+$'});
send_until { gap() > 0 } 'younger segments are emptied, that of the forgotten transaction is not';
is($node->sql("SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = $segment"), 'sealed', '... it is sealed');
ok($node->wait_until_sent, '... and everything is sent');
is($redis->count('d'), $n, '... once');

my $dispatcher = $node->dispatcher;
my $log = $node->log_position;
$redis->cli('FLUSHALL');
my @bodies = is_in_order_and_goes_on('Redis is emptied');
is($bodies[-1], $n, '... to the newest');
is("@bodies", join(' ', $bodies[0] .. $n), '... without a gap of its own');
is($node->dispatcher, $dispatcher, '... by the same dispatcher');
unlike($node->log_since($log), qr/ERROR|FATAL|is missing/, '... and nothing goes wrong');

# The fence of a time before the gap: its window is kept, the next ones are not.
ok(gap() > 0, 'the gap is still there');
$log = $node->log_position;
$redis->stop;
$redis->restore_data;
$redis->start;
my %old = map { $_ => 1 } $redis->bodies('d');
@bodies = is_in_order_and_goes_on('Redis goes back to before the gap');
is(scalar(grep { $_ == $n } @bodies), 1, '... to the newest');
like($node->log_since($log), qr/the fence in Redis is older than the windows that are kept/, '... the log says so');
like($node->status('problem'), qr/Some of those enqueued before .* might be missing/, '... and problem says what may be missing');
is($node->dispatcher, $dispatcher, '... by the same dispatcher');

# The next dispatcher goes on from the same place.
ok(gap() > 0, 'the gap is still there');
$node->kill_process($dispatcher);
$redis->cli('FLUSHALL');
eventually { $node->answers } 'the server is back after a crash, which ended the forgotten transaction';
is_in_order_and_goes_on('Redis is emptied and the dispatcher killed');
eval { $writer->quit };

# The forgotten transaction commits in the end.
$writer = $node->session;
$writer->query_safe('BEGIN');
$writer->query_safe(q{SELECT outbox_enqueue('forgotten', 'y')});
send_until { gap() > 0 } 'another transaction is forgotten';
$writer->query_safe('COMMIT');
$writer->quit;
eventually { $redis->count('forgotten') == 1 } '... but commits in the end, and its message is sent';
send_until { gap() == 0 } '... then its segment is emptied, too';
$redis->cli('FLUSHALL');
is_in_order_and_goes_on('Redis is emptied');

done_testing();
