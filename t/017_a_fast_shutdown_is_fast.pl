# The server stops at once, whatever its workers are doing; they end when they are
# terminated, and when the postmaster is gone.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.connect_timeout = '10min'
outbox.command_timeout = '10min'
END
my $script = "SELECT outbox_enqueue('d', 'x');";

sub stops
{
	my ($state) = @_;
	cmp_ok(seconds { $node->stop('fast') }, '<', 170, "fast shutdown: $state");
	return;
}

# Redis hangs while the dispatcher has a connection and a message to send. If it was
# just renewing the lease or moving the fence, it hangs there and opens no window.
sub hang
{
	$node->poll_query_until('postgres', q{SELECT redis_state = 'up' FROM outbox.status}) or return 0;
	$redis->pause;
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	return $node->poll_query_until('postgres', q{SELECT windows > 0 OR oldest_pending > '5 s' FROM outbox.status});
}

$node->sql($script);
ok($node->wait_until_sent, 'dispatch works');
stops('idle');

$node->start;
my $load = $node->start_load(clients => 4, scripts => [$script]);
my $count = $redis->count('d');
eventually { $redis->count('d') > $count + 500 } 'dispatch works under load';
stops('under load');
$load->finish;

$node->start;
ok(hang(), 'Redis hangs');
stops('while Redis hangs');

$redis->resume;
$node->start;
ok($node->wait_until_sent, 'dispatch goes on');
ok(hang(), 'Redis hangs again');
my $pid = $node->dispatcher;
$node->sql("SELECT pg_terminate_backend($pid)");
my $took = seconds { wait_until { !kill 0, $pid } };
cmp_ok($took, '<', 170, 'a terminated dispatcher leaves while Redis hangs');

$pid = $node->dispatcher;
ok($pid, 'there is a new one');
$node->kill9;
$took = seconds { wait_until { !kill 0, $pid } };
cmp_ok($took, '<', 170, 'without the postmaster it leaves too');
$redis->resume;
$node->start_after_kill;
ok($node->wait_until_sent, 'the next one sends what is left');

done_testing();
