# Redis is told of the partitions of each destination when a connection is opened, and where
# their streams end when their number changes. To a distant Redis Cluster that takes longer than
# the lease lives, and messages are sent all the same.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use RedisCluster;
use Test::More;
use Time::HiRes qw(usleep);

my $destinations = 60;
my $cluster = RedisCluster->new(replicas => 0);
my @proxies = map { Proxy->new($_) } $cluster->nodes;
$cluster->node($_)->command('CONFIG', 'SET', 'cluster-announce-port', $proxies[$_]->port) foreach 0 .. 2;
my $node = Outbox->create('main', redis => $cluster, conf => <<"END_OF_CONF");
outbox.redis_url = 'redis+cluster://127.0.0.1:@{[ $proxies[0]->port ]}'
outbox.connect_timeout = '10s'
outbox.command_timeout = '10s'
END_OF_CONF

# Each node names the proxies, and knows what it has.
eventually
{
	!grep { my $known = join ' ', map { $_->[2][1] } @{ $_->command('CLUSTER', 'SLOTS') }; grep { $known !~ /\b@{[ $_->port ]}\b/ } @proxies } $cluster->nodes
} 'the nodes announce the proxies';

# Of the nodes only the one that has a key tells of it.
sub ask { my (@words) = @_; return (grep { defined } map { my $node = $_; scalar eval { $node->command(@words) } } $cluster->nodes)[0]; }
sub count { my ($stream) = @_; return ask('XLEN', $stream); }
sub layout { my ($dest) = @_; my $fields = ask('HGETALL', "outbox:partitions:$dest"); return {@$fields}; }

$node->sql("SELECT outbox_set_destination('d' || i, partitions => 1) FROM generate_series(1, $destinations) i; SELECT outbox_set_destination('wide', partitions => 100)");
eventually { !grep { !layout($_)->{partitions} } "wide", map { "d$_" } 1 .. $destinations } 'Redis is told of all destinations';

$_->delay(100) foreach @proxies;
$node->sql(q{SELECT outbox_enqueue('d' || i, 'body') FROM generate_series(1, 3) i});
$node->restart;
$node->sql(q{SELECT outbox_enqueue('d' || i, 'body') FROM generate_series(1, 3) i});
eventually { !grep { count("d$_:0") < 2 } 1 .. 3 } 'messages are sent when many destinations have partitions';
$node->sql("SELECT outbox_set_destination('wide', partitions => 101)");
eventually { layout('wide')->{partitions} == 101 } 'the ends of many streams are told';
$node->sql(q{SELECT outbox_enqueue('d1', 'body')});
eventually { count('d1:0') == 3 } '... and messages are sent after that';

# While nothing is sent, Redis is asked whether it still knows them.
my @took;
foreach my $n (1 .. 7)
{
	usleep(3_300_000 + 300_000 * $n);
	push @took, seconds { $node->sql(qq{BEGIN; SELECT outbox_begin('$n'); SELECT outbox_enqueue('d1', 'body'); SELECT outbox_commit(); COMMIT; SELECT outbox_wait('$n')}); };
}
my $median = (sort { $a <=> $b } @took)[3];
cmp_ok($median, '<', 2, "... and no message waits until it was asked of all ($median s)");

done_testing();
