# A message breaks the link to its node again and again, and comes when it would be blamed for
# that: it is in its stream, so it is not deferred. Other lanes are behind it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(masters => 1, replicas => 0);
my $redis = $cluster->node(0);
my $proxy = Proxy->new($redis);
$redis->command('CONFIG', 'SET', 'cluster-announce-port', $proxy->port);
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.retry_delay = '1s'");

sub enqueue { my ($body) = @_; $node->sql("SELECT outbox_enqueue('orders', '$body')"); return; }

enqueue('1');
eventually { $redis->sequence('orders') eq '1' } 'a message comes through the proxy';
$proxy->cut_then_lose('a heavy one', 5);
enqueue('a heavy one');
eventually { $proxy->harmed == 6 } 'the link breaks six times, and the last time the message arrives';
$proxy->pass;
enqueue('2');
eventually { $redis->sequence('orders') =~ /2$/ } 'the next message comes';
is($redis->sequence('orders'), '1 a heavy one 2', 'the message came once');
is($node->sql('SELECT count(*) FROM outbox.deferred'), '0', 'nothing was deferred');
done_testing();
