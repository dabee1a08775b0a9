# The dispatcher of a Redis Cluster is ended, and the server is killed, at each kill point in
# what publishes, while slots are used for the first time, one destination changes its
# stream and another one its partitions, a third one refuses now and then or is forbidden, and
# other servers take over: what has committed is in Redis, once and in order, on one node.

use strict;
use warnings FATAL => 'all';

use KillPoints;
use Ledger;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;
use Time::HiRes qw(usleep);

my $cluster = RedisCluster->new(replicas => 0);
my $node = create_with_kill_points('main', redis => $cluster, conf => <<'END');
outbox.batch_size = 3
outbox.takeover_delay = 0
outbox.retry_delay = '20ms'
outbox.retry_max_delay = '100ms'
outbox.max_attempts = 1000000
END
my $lease = 'outbox:lease:' . $node->sql('SELECT id FROM outbox.instance');
my $ledger = Ledger->new($node, $cluster, 'events', '{flaky} steady', 'flaky', 'moved', 'keyed');
my @ways = ('moved', 'moved:1', 'moved:2', 'moved:3');
$ledger->spread(moved => @ways);
$ledger->spread(keyed => 'keyed', map { "keyed:$_" } 0 .. 3);
my $changes = 0;
my $news = 0;

# A process passes some points when it connects, one of them only if another server published
# before, most as it sends, and some in both. A single Redis has those of partition_layout.c.
my @points = grep { !/^layout_/ } kill_points('bgworker/lane', 'bgworker/connection', 'bgworker/publish');
my $connecting = qr/^(lease_looked_at|fences_read|eras_noted|lane_others_barred|fence_claimed|position_resumed)$/;
my $both = qr/^(fence_sent|lane_mapping_noted|cluster_layout_.*)$/;

foreach my $manner ('end', 'server')
{
	die_amid_takeover($_, $manner) foreach grep { /$connecting|$both/ } @points;
	die_amid_load($_, $manner) foreach grep { !/$connecting/ } @points, 'deferred_written', 'return_committed';
	eventually { $node->status('pending = 0 AND deferred = 0 AND problem IS NULL') eq 't' } 'all is sent';
	$ledger->agrees('all messages are there, in order, and none is twice or on two nodes');
}
done_testing();

# Another server has the lease from now on, as far as Redis and the database can tell: a
# copied file has another inode. The dispatcher is not running, and its lease has run out.
sub become_another_server
{
	my $file = $node->data_dir . '/outbox.server';

	system_or_bail('cp', '-p', $file, "$file.copy");
	rename "$file.copy", $file or die "could not rename $file.copy: $!";
	$cluster->node_of($lease)->command('DEL', $lease);
	return;
}

# The server goes down under load, and the one that takes over dies, too.
sub die_amid_takeover
{
	my ($point, $manner) = @_;

	my $load = start_load();
	change();
	$node->stop('immediate');
	$load->finish;
	accept_all();
	become_another_server();
	arm($node, $point, $manner);
	$node->start(fail_ok => 1);
	# The former one may have told Redis of the change already.
	ok(wait_until { fired($node) or do { change(); 0 } }, "$manner in a takeover: $point") or return;
	back_as_another($manner);
	return;
}

sub die_amid_load
{
	my ($point, $manner) = @_;

	arm($node, $point, $manner);
	ok(wait_until { burst(); fired($node) }, "$manner under load: $point") or return;
	back_as_another($manner);
	return;
}

# After a crash it is always another server that goes on.
sub back_as_another
{
	my ($manner) = @_;

	wait_until { !-e $node->data_dir . '/postmaster.pid' } and become_another_server() if $manner eq 'server';
	revive($node, $manner) or BAIL_OUT('the server is gone');
	return;
}

# Gives a destination another stream and another one other partitions; a server that dies may not answer.
sub change
{
	$changes++;
	eval { $node->psql('postgres', "SELECT outbox_set_destination('moved', stream => '$ways[$changes % 4]'), outbox_set_destination('keyed', partitions => 1 + $changes % 4)") };
	return;
}

# Transactions with messages for all destinations and for one that is new, and some that are rolled back.
sub start_load
{
	my $new = $ledger->add('new:' . ++$news);
	my $post = "SELECT post(d, :client_id) FROM generate_series(1, 3), unnest(ARRAY['events', '{flaky} steady', 'flaky', 'moved', 'keyed', '$new']) d;\n";

	$news % 2 ? $cluster->refuse('flaky') : $cluster->forbid('flaky');
	return $node->start_load(clients => 3, transactions => 5, rate => 150,
		scripts => [ "BEGIN;\n${post}COMMIT;\n", "SELECT post('flaky', :client_id);\n", "BEGIN;\n${post}ROLLBACK;\n" ]);
}

sub accept_all
{
	$cluster->forbid_none;
	$cluster->accept('flaky');
	return;
}

sub burst
{
	my $load = start_load();

	usleep(30_000);
	change();
	usleep(5_000) while $load->is_running and not fired($node);
	$load->finish;
	accept_all();
	wait_until { fired($node) || $node->status('deferred = 0') eq 't' };
	return;
}
