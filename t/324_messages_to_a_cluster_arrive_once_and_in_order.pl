# The dispatcher publishes to a Redis Cluster: messages to many streams come to the nodes of
# their slots, once and in order, wherever the dispatcher dies, while slots move, and while
# some streams refuse.

use strict;
use warnings FATAL => 'all';

use KillPoints;
use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = create_with_kill_points('main', redis => $cluster, conf => "outbox.retry_delay = '100ms'\noutbox.retry_max_delay = '200ms'\noutbox.max_attempts = 1000000");
my $ledger = Ledger->new($node, $cluster, map { "events:$_" } 1 .. 20);

$ledger->post('events:1', 'events:2', 'events:1');
$ledger->agrees('messages to two streams');
is($node->sql('SELECT count(*) FROM outbox.lane'), 2, 'their hash slots are noted');

my $unused = 3;
foreach my $point ('lane_claimed', 'lane_noted', 'batch_sent')
{
	foreach my $manner ('end', 'kill', 'server')
	{
		arm($node, $point, $manner);
		# The server may be gone before the client has read the answer.
		eval { $ledger->post('events:1', "events:$unused", 'events:2', 'events:' . ($unused + 1)) };
		ok(wait_until { fired($node) }, "$manner at $point, where a slot is used for the first time") or next;
		revive($node, $manner) or BAIL_OUT('the server is gone');
		$unused += 2 if $unused < 19;
		$ledger->agrees('... loses and doubles nothing');
	}
}

my $load = $ledger->start_load(100);
my $sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'messages to 20 streams are sent under load';
$cluster->refuse('events:1', 'events:2');
eventually { $node->status('deferred > 20') eq 't' } 'messages for streams that refuse wait';
$sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'the others go on';
foreach my $stream ('events:3', 'events:4', 'events:5')
{
	my $from = $cluster->index_of($stream);
	$cluster->move_slot($cluster->slot_of($stream), $from, ($from + 1) % 3);
}
$cluster->accept('events:1', 'events:2');
$sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'slots move from node to node';
$_->command('SCRIPT', 'FLUSH') foreach $cluster->nodes;
$sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'nodes forget the script';
$load->stop;
$ledger->agrees('all messages are there, in order, and none is twice or on two nodes');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';

# Nodes that are known from another URL may be those of another cluster.
$node->set('outbox.redis_url' => 'redis+cluster://127.0.0.1:1');
eventually { $node->status('redis_error') =~ /127\.0\.0\.1:1\)/ } 'a cluster that is away is not replaced by the one that was used before';
$ledger->post('events:1');
is($node->status('redis_state'), 'down', '... nor are messages sent there');

done_testing();
