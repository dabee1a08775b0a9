# The hash slots of a Redis Cluster may lie scattered over its masters, whose names may be long:
# then what a node says of the slots is long, too.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0, dealt => 1, config => [ '--cluster-announce-hostname', join '.', ('n' x 49) x 4 ]);
my $node = Outbox->create('main', redis => $cluster);
my $ledger = Ledger->new($node, $cluster, map { "events:$_" } 1 .. 20);

$ledger->post;
$ledger->agrees('messages arrive in a cluster whose slots lie scattered');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';

done_testing();
