# The dispatcher of a Redis Cluster is ended at each kill point beside those in what
# publishes, which t/337 walks through, and those of records and compaction: what has
# committed is in Redis, once and in order, and nothing else is.

use strict;
use warnings FATAL => 'all';

use DispatcherWalk;
use RedisCluster;
use Test::More;

my $walk = DispatcherWalk->new(RedisCluster->new(replicas => 0));

$walk->walk_beside_publishing('end');
$walk->books_agree;

done_testing();
