# When the number of partitions changes, Redis is asked where the streams end, and not for
# their entries: these may be larger than any answer that is read, and many of them larger
# than the memory of Redis.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use RedisCluster;
use Test::More;

my $megabyte = 1024 * 1024;
my $key = 'outbox:partitions:orders';
my $layout;

sub post { my ($node, $bytes, $n) = @_; $node->sql("SELECT count(outbox_enqueue('orders', i || repeat('x', $bytes), key => 'key ' || i)) FROM generate_series(1, $n) i"); return; }

# Changes the number of partitions, and waits until consumers can read it.
sub set_partitions
{
	my ($node, $n, $read) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql("SELECT outbox_set_destination('orders', partitions => $n)");
	eventually { $layout = { @{ $read->('HGETALL', $key) } }; ($layout->{partitions} // 0) == $n } "there are $n partitions";
	return;
}

# The answers of a Redis Cluster are read here.
my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.command_timeout = '20s'");
my $ask = sub { $cluster->node_of($key)->command(@_) };
set_partitions($node, 1, $ask);
post($node, 20 * $megabyte, 1);
ok($node->wait_until_sent, 'a large message arrives');
set_partitions($node, 2, $ask);
is($layout->{'end:0'}, $cluster->node_of('orders:0')->command('XREVRANGE', 'orders:0', '+', '-')->[0][0], '... where the former stream ends is told');
ok(!exists $layout->{end}, '... and of a stream that there is not nothing');
post($node, 1, 10);
ok($node->wait_until_sent, '... and messages go on');
$node->stop;

# Those of a single Redis by the script that it runs. Some of a stream's entries may be gone.
my $redis = Redis->new;
$node = Outbox->create('single', redis => $redis, conf => "outbox.command_timeout = '20s'");
$ask = sub { $redis->command(@_) };
set_partitions($node, 20, $ask);
post($node, 3 * $megabyte, 100);
ok($node->wait_until_sent, 'large messages arrive');

sub peak { my ($pid) = $redis->command('INFO', 'server') =~ /process_id:(\d+)/; return slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+) kB/ ? $1 / 1024 : die 'no peak'; }
my $before = peak();
set_partitions($node, 21, $ask);
my $grown = peak() - $before;
cmp_ok($grown, '<', 60, "Redis needs little memory for large entries of many streams ($grown MB)");
is($layout->{'end:7'}, $redis->command('XREVRANGE', 'orders:7', '+', '-', 'COUNT', 1)->[0][0], '... and knows where they end');

done_testing();
