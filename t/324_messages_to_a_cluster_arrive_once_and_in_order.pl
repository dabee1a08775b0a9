# The dispatcher publishes to a Redis Cluster: messages to many streams come to the nodes of
# their slots, once and in order, while it is killed and while slots move.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster);
my $ledger = Ledger->new($node, $cluster, 20);

$ledger->post;
$ledger->post('events:1', 'events:2', 'events:1');
$ledger->agrees('messages to 20 streams over three masters');
cmp_ok($node->sql('SELECT count(*) FROM outbox.lane'), '>=', 20, 'their hash slots are noted');

my $load = $ledger->start_load(100);
my $sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'messages are sent under load';
$node->kill_dispatcher;
$load->stop;
$node->start_after_kill;
$load = $ledger->start_load(100);
$sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'also when the dispatcher was killed';

my $reshard = $cluster->start_reshard(0, 1, 200);
ok($reshard->finish, 'slots move from node to node') or diag($cluster->{cli});
foreach my $stream ('events:1', 'events:2', 'events:3')
{
	my $from = $cluster->index_of($stream);
	$cluster->move_slot($cluster->slot_of($stream), $from, ($from + 1) % 3);
}
$sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'messages are sent to where they are now';
$load->stop;
$ledger->agrees('all of them are there, in order, and none is twice or on two nodes');
is($node->status('problem IS NULL'), 't', 'nothing is wrong');

done_testing();
