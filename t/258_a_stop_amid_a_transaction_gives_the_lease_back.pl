# A clean stop gives the lease back also if it finds the dispatcher amid a transaction, as it
# mostly does under load: another server need not wait until the lease has expired.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use RedisCluster;
use Test::More;
use Time::HiRes qw(time usleep);

# Stops a server whose dispatcher waits for a lock, and looks for its lease. The arguments:
# what is published to, and the node of it that has a key.
sub gives_the_lease_back
{
	my ($redis, $node_of, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $node = Outbox->create($name, redis => $redis);
	my $key = 'outbox:lease:' . $node->sql('SELECT id FROM outbox.instance');
	my $lease = sub { return $node_of->($key)->command('GET', $key) // ''; };

	# A stream of the same node: so there is a link to that.
	my ($stream) = grep { $node_of->($_) == $node_of->($key) } map { "d:$_" } 1 .. 100;

	$node->sql("SELECT outbox_enqueue('$stream', 'first')");
	ok($node->wait_until_sent, "$name: a message is sent");
	my $dispatcher = $node->dispatcher;
	like($lease->(), qr/process $dispatcher$/, '... and the lease is held');

	# Not by a session, which the stop would end, too: the dispatcher might have the lock first.
	$node->sql("BEGIN; LOCK outbox.window_0, outbox.window_1, outbox.window_2, outbox.window_3 IN SHARE MODE; PREPARE TRANSACTION 'holder'");
	$node->sql("SELECT outbox_enqueue('$stream', 'second')");
	eventually { $node->sql("SELECT count(*) FROM pg_locks WHERE pid = $dispatcher AND NOT granted") == 1 } 'its dispatcher hangs amid a transaction';
	isnt($lease->(), '', '... with the lease');
	$node->stop('fast');

	# A busy Redis may read that a moment later, but long before the lease would expire.
	my $until = time + 3;
	usleep(20_000) while $lease->() ne '' && time < $until;
	is($lease->(), '', 'a fast stop gives the lease back');

	$node->start;
	$node->sql("ROLLBACK PREPARED 'holder'");
	ok($node->wait_until_sent, 'the next dispatcher goes on');
	is($redis->sequence($stream), 'first second', '... and each message came once');
	$node->stop;
	return;
}

my $redis = Redis->new;
gives_the_lease_back($redis, sub { return $redis; }, 'single');
my $cluster = RedisCluster->new(replicas => 0);
gives_the_lease_back($cluster, sub { return $cluster->node_of($_[0]); }, 'cluster');

done_testing();
