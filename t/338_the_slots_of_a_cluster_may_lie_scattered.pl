# The hash slots of a Redis Cluster may lie scattered over its masters, whose names may be long:
# then what a node says of the slots is long, too.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0, dealt => 1, config => [ '--cluster-announce-hostname', join '.', ('n' x 49) x 4 ]);
my $node = Outbox->create('main', redis => $cluster);

$node->sql(q{SELECT outbox_enqueue('events:' || i, 'x') FROM generate_series(1, 20) i});
ok($node->wait_until_sent, 'all is sent');
is_deeply([ map { scalar(my @places = $cluster->places_of("events:$_")) } 1 .. 20 ], [ (1) x 20 ], 'messages arrive in a cluster whose slots lie scattered');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';

done_testing();
