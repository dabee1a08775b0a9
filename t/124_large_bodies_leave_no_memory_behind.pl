# A body of 64 MiB arrives whole, and afterwards the dispatcher has as much memory as
# before.

use strict;
use warnings FATAL => 'all';

use Digest::SHA qw(sha1_hex);
use Outbox;
use PostgreSQL::Test::Utils qw(slurp_file);
use Redis;
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

done_testing();
