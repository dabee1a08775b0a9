# A body of 64 MiB arrives whole, and afterwards the dispatcher has as much memory as
# before. So it has in a Redis Cluster, where each of hundreds of hash slots gets a large one now and then.

use strict;
use warnings FATAL => 'all';

use Digest::SHA qw(sha1_hex);
use Outbox;
use PostgreSQL::Test::Utils qw(slurp_file);
use Redis;
use RedisCluster;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");
my $piece = '0123456789abcdef';

# The memory of a process in megabytes, without shared memory.
sub private_memory
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 / 1024 : undef;
}

sub enqueue
{
	my ($dest, $mib) = @_;
	$node->sql("SELECT outbox_enqueue('$dest', repeat('$piece', $mib * 65536))");
	return;
}

plan skip_all => 'needs /proc' unless -e "/proc/$$/status";

enqueue('small', 1);
ok($node->wait_until_sent, 'a body of 1 MiB');
my $pid = $node->dispatcher;
cmp_ok(private_memory($pid), '<', 64, 'the dispatcher needs less than 64 MB');

# Two such bodies would need twice the memory if both were sent at the same time.
foreach my $mib (64, 64, 20, 20, 20)
{
	enqueue("large $mib", $mib);
}
ok($node->wait_until_sent, 'bodies of up to 64 MiB are sent');
is($redis->count('large 64') + $redis->count('large 20'), 5, '... each once');
foreach my $mib (64, 20)
{
	my $sum = $redis->cli('EVAL', "return redis.sha1hex(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][2][6])", 1, "large $mib");
	is($sum, sha1_hex($piece x ($mib * 65536)), "... and whole: $mib MiB");
}

eventually { private_memory($pid) < 32 } 'their memory is given back, without another message';
enqueue('small', 1);
ok($node->wait_until_sent, 'it goes on');
cmp_ok(private_memory($pid), '<', 64, '... with little memory');
is($node->dispatcher, $pid, '... and is still the same process');

my $cluster = RedisCluster->new(masters => 1, replicas => 0, config => [ '--stream-node-max-entries', 1 ]);
my $other = Outbox->create('other', redis => $cluster, conf => "outbox.stream_maxlen = 1\n");
$other->sql("SELECT outbox_enqueue('s' || i, 'body') FROM generate_series(1, 300) i");
ok($other->wait_until_sent, 'hundreds of hash slots are in use');
$pid = $other->dispatcher;
foreach my $round (1 .. 15)
{
	$other->sql("SELECT outbox_enqueue('s' || i, CASE WHEN i = large THEN repeat('$piece', 56000) ELSE 'body' END)
		FROM (SELECT i, large FROM generate_series(1, 10) n, LATERAL (SELECT 1 + (random() * 299)::int + 0 * n AS large) l, generate_series(1, 300) i ORDER BY n, random()) m");
	$other->wait_until_sent;
}
cmp_ok(private_memory($pid), '<', 64, 'the dispatcher needs less than 64 MB when many of them have got a large body');
is($other->dispatcher, $pid, '... and is the same process');

done_testing();
