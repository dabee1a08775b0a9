# A connection to Redis takes one file descriptor, and gives it back. A process that may
# have no more of them goes on with the connections that it has: one more is a connection
# that failed.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Proxy;
use Redis;
use RedisCluster;
use Test::More;

# What each file descriptor of a process is.
sub descriptors
{
	my ($pid) = @_;
	return map { readlink($_) // () } glob "/proc/$pid/fd/*";
}

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $sent = 0;
$node->sends($redis, ++$sent, 'a message is sent');
my $pid = $node->dispatcher;
my @before;
eventually { @before = descriptors($pid); 1 == grep { /eventpoll/ } @before } 'PostgreSQL has a descriptor to wait with, and the connection none';
foreach (1 .. 30)
{
	$redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	$sent++;
	wait_until { $redis->count('d') == $sent } or last;
}
is($redis->count('d'), $sent, 'each time that the connection is cut there is another one');
is($node->dispatcher, $pid, '... of the same process');
eventually { my @now = descriptors($pid); @now <= @before } '... which has no more descriptors than before';
$node->stop;

# A cluster of more masters than the dispatcher may have connections: a single node has all slots,
# and something else says that each range of them is served by a node of another address. The
# server lets a process have so many descriptors for connections as a third of those for files.
my $masters = 32;
my $cluster = RedisCluster->new(masters => 1, replicas => 0);
my @proxies = map { Proxy->new($cluster->node(0)) } 1 .. $masters;
my @first = map { int(16384 * $_ / $masters) } 0 .. $masters;
my $map = "*$masters\r\n" . join '', map { "*3\r\n:$first[$_]\r\n:" . ($first[ $_ + 1 ] - 1) . "\r\n*2\r\n" . Impostor::bulk('127.0.0.1') . ':' . $proxies[$_]->port . "\r\n" } 0 .. $masters - 1;
my $seed = Impostor->new(
	plain => sub {
		my ($client, @words) = @_;
		return uc($words[1] // '') eq 'SLOTS' ? $map : Impostor::bulk('cluster_state:ok') if $words[0] eq 'CLUSTER';
		return undef;
	});
my %stream;
for (my $n = 0; keys %stream < $masters; $n++)
{
	my $slot = $cluster->slot_of("s$n");
	$stream{ (grep { $slot >= $first[$_] && $slot < $first[ $_ + 1 ] } 0 .. $masters - 1)[0] } //= "s$n";
}

my $few = Outbox->create('few', conf => "max_files_per_process = 90\noutbox.redis_url = 'redis+cluster://127.0.0.1:" . $seed->port . q{'});
$pid = $few->dispatcher;
$few->sql("SELECT outbox_enqueue('$_', 'x')") foreach values %stream;
my $most;
eventually
{
	$most = grep { $cluster->count($_) == 1 } values %stream;
	$few->status('problem') =~ /hash slots of the Redis Cluster cannot be written to.* no file descriptor is free .*max_files_per_process/
}
'connections that can have no descriptor are a problem, which says what to do'
  or diag $few->sql('SELECT * FROM outbox.problems') . $few->status('redis_error');
note "$most of $masters masters are connected to";
cmp_ok($most, '>=', 15, '... and messages are sent through as many as there are descriptors for');
is($few->dispatcher, $pid, '... by the same process');
unlike($few->log_since(0), qr/(ERROR|FATAL|PANIC): /, '... without an error');

# No more is needed than the setting that is named.
$few->restart_with(max_files_per_process => 1000);
eventually { $few->status('pending') == 0 } 'with more descriptors all messages are sent';
is(grep({ $cluster->count($_) == 1 } values %stream), $masters, '... once');
eventually { $few->status('problem IS NULL') eq 't' } '... and nothing is wrong';

done_testing();
