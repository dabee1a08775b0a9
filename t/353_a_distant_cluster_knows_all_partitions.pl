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

# While nothing is sent, Redis is asked every three seconds whether it still knows them. A message that
# comes when that has begun is sent before most of them were asked about. (If this process gets no
# processor when the message is there, more of them have been before it looks: then it tries again.)
sub asked { my $sum = 0; $sum += $_->command('INFO', 'commandstats') =~ /cmdstat_hmget:calls=(\d+)/ ? $1 : 0 foreach $cluster->nodes; return $sum; }
my $session = $node->session;
my $sent = 3;
my $meanwhile;
eventually
{
	my $rested = 0;
	my $before = asked();
	for (1 .. 300)
	{
		usleep(100_000);
		my $now = asked();
		$rested = $now == $before ? $rested + 1 : 0;
		last if $rested > 5;
		$before = $now;
	}
	for (1 .. 3000)
	{
		last if asked() > $before;
		usleep(2_000);
	}
	$session->query_safe(q{SELECT outbox_enqueue('d1', 'body')});
	my $asked = asked();
	$sent++;
	wait_until { count('d1:0') == $sent };
	$meanwhile = asked() - $asked;
	$asked < $before + $destinations / 4 && $meanwhile < $destinations / 2;
}
'... and no message waits until it was asked of all';
note "asked of $meanwhile meanwhile";
$session->quit;

done_testing();
