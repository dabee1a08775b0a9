# While the slots of a Redis Cluster move from node to node, messages arrive once and in
# order, and no stream is on two nodes; also if a reshard is abandoned half-way, or the
# dispatcher is down meanwhile.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;
use Time::HiRes qw(usleep);

my $cluster = RedisCluster->new(fails_after => 3000);
my $node = Outbox->create('main', redis => $cluster);
my @streams = map { "events:$_" } 1 .. 12;
my $ledger = Ledger->new($node, $cluster, @streams, '{events:1}:new');

# The number of a master that does not have that slot.
sub other_than
{
	my ($n) = @_;
	return (grep { $_ != $n } 0 .. 2)[0];
}

$ledger->post(@streams);
$ledger->agrees('messages arrive on all nodes');
is($node->sql("SELECT count(*) FROM outbox.lane WHERE slot IN (" . join(",", map { $cluster->slot_of($_) } @streams) . ")"), scalar @streams, "... and the slots in use are noted");

# The slot of each stream moves while all are written to.
my $load = $ledger->start_load(100, @streams);
foreach my $stream (@streams)
{
	my $from = $cluster->index_of($stream);
	$cluster->move_slot($cluster->slot_of($stream), $from, other_than($from));
}
my @resharded = (other_than($cluster->index_of('events:1')), $cluster->index_of('events:1'), 200);
eventually { $cluster->start_reshard(@resharded)->finish or do { $cluster->fix; 0 } } 'redis-cli moves some hundred slots' or diag $cluster->{cli};
$load->stop;
$ledger->agrees('slots moved under load');

# A reshard is abandoned when one of two keys has moved; a stream of the slot is new.
my $from = $cluster->index_of('events:1');
my $to = other_than($from);
$cluster->move_slot($cluster->slot_of('events:1'), $from, $to, stop_after => 1);
$load = $ledger->start_load(50, @streams);
$ledger->post('{events:1}:new');
eventually { $node->status('redis_error') =~ /TRYAGAIN|ASK/ } 'a slot that is neither here nor there is said';
eventually { $node->status('problem') =~ /redis-cli --cluster fix/ } '... and what to do about it';
$cluster->fix;
$load->stop;
$ledger->agrees('it is sent when the cluster was fixed');

# The dispatcher is down while a slot moves, and again while its node fails over amid the move,
# when the stream has gone, or our own key.
foreach my $fails (undef, qr/^events/, qr/^outbox/)
{
	$node->set('outbox.dispatch' => 'off');
	eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
	$ledger->post;
	$from = $cluster->index_of('events:2');
	$to = (grep { $cluster->is_master($_) && $_ != $from } $cluster->up)[0];
	$cluster->move_slot($cluster->slot_of('events:2'), $from, $to, $fails ? (only => $fails) : ());
	my $heir = $cluster->replica_of($from);
	if ($fails)
	{
		$cluster->wait_for_replica($_) foreach $from, $to;
		$cluster->failover($heir, 'FORCE');
		$cluster->wait_until_ok;
	}
	$node->set('outbox.dispatch' => 'on');
	if ($fails)
	{
		eventually { $node->status('redis_error') =~ /TRYAGAIN|ASK|slot|MOVED/ } 'a slot that is torn is neither taken for an emptied one nor written to';

		# Without this redis-cli may choose another owner, and then Redis may delete the keys
		# that the first one has before they were brought over.
		$cluster->node($heir)->command('CLUSTER', 'SETSLOT', $cluster->slot_of('events:2'), 'MIGRATING', $cluster->id($to));
		$cluster->fix;
	}
	$ledger->agrees('a slot moved while the dispatcher was down' . ($fails ? ', and its node failed over' : ''));
}

# A dispatcher begins in the moment in which a slot has its owner already, and its keys not yet:
# nothing tells of a move.
my $slot = $cluster->slot_of('events:3');
my $owner = $cluster->index_of('events:3');
my ($keeper) = grep { $cluster->is_master($_) && $_ != $owner } $cluster->up;

sub bring_keys
{
	my ($from, $to) = @_;

	# So the one that does not have the slot takes its keys, and gives them back.
	$cluster->node($keeper)->command('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $cluster->id($owner));
	$cluster->migrate($from, $to, @{ $cluster->node($from)->command('CLUSTER', 'GETKEYSINSLOT', $slot, 100) });
	$cluster->node($keeper)->command('CLUSTER', 'SETSLOT', $slot, 'STABLE');
	return;
}

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$ledger->post;
bring_keys($owner, $keeper);
$node->restart;
my $session = $node->session;    # a psql for each look might take longer than the three seconds
$node->set('outbox.dispatch' => 'on');
my $dispatcher = $node->dispatcher;
eventually { $session->query_safe('SELECT redis_error FROM outbox.status') =~ /the fence of hash slot $slot is missing/ && kill 'STOP', $dispatcher }
'a fence that is missing is not taken for lost at once';
bring_keys($keeper, $owner);
kill 'CONT', $dispatcher;
$ledger->agrees('the fence comes back');
$session->quit;
done_testing();
