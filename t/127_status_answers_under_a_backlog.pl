# outbox.status reads about as little whatever there is: a huge transaction in
# progress, one that was rolled back, a backlog. Blocks are counted, for time depends
# on the machine.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $messages = 150_000;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $enqueue = "SELECT count(outbox_enqueue('d', 'x')) FROM generate_series(1, $messages)";

# Blocks that a look at the view touches. The second look, for what the first one learns.
sub blocks
{
	my ($hit, $read) = (0, 0);
	my $plan = $node->sql('SELECT pending FROM outbox.status; EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) SELECT * FROM outbox.status');

	($hit) = $plan =~ /Buffers: shared.*?hit=(\d+)/;
	($read) = $plan =~ /Buffers: shared.*?read=(\d+)/;
	return ($hit // 0) + ($read // 0);
}

# Nothing is in a window that would hide it: Redis is away, dispatch is off.
$node->sql("SELECT outbox_enqueue('d', 'x')");
ok($node->wait_until_sent, 'idle');
my $idle = blocks();
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';

my $session = $node->session;
$session->query_safe("BEGIN; $enqueue;");
is($node->status('pending'), 0, 'a transaction with many messages is in progress');
cmp_ok(blocks(), '<', $idle + 300, '... its rows are not looked at');
$session->query_safe('ROLLBACK;');
is($node->status('pending'), 0, 'it is rolled back');
cmp_ok(blocks(), '<', $idle + 300, '... its rows are not looked at');
$session->quit;

$node->sql($enqueue);
cmp_ok($node->status('pending'), '>=', 10_000, 'one is committed');
cmp_ok(blocks(), '<', $idle + 1000, '... some of its rows are looked at');

# The dispatcher skips what was rolled back, too, and finds the rest.
$node->set('outbox.dispatch' => 'on');
ok($node->wait_until_sent, 'it is sent');
is($redis->count('d'), $messages + 1, '... each message once');

done_testing();
