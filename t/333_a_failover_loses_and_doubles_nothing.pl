# The nodes of a Redis Cluster fail over: what the new master lacks is sent again, for streams
# that are written to and for those that are not, and nothing else is.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;
use Time::HiRes qw(usleep);

my $cluster = RedisCluster->new(fails_after => 3000);
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.command_timeout = '3s'");
my @idle = map { "idle:$_" } 1 .. 8;
my @busy = map { "busy:$_" } 1 .. 8;
my $ledger = Ledger->new($node, $cluster, @idle, @busy);

# The node of an idle stream loses to its replica what it has got last.
sub lose
{
	my ($name, $fail, %option) = @_;
	my $master = $cluster->index_of('idle:1');
	my $replica = $cluster->replica_of($master);
	my $down = $option{down};
	my $load;

	$cluster->wait_for_replica($master);
	$cluster->cut_replica($replica) unless $option{whole};
	$ledger->post;
	$node->wait_until_sent;
	$node->set('outbox.dispatch' => 'off') if $down;
	$load = $ledger->start_load(100, @busy) unless $down;
	usleep(300_000);
	$fail->($master, $replica);
	$cluster->join_replica($replica);
	if ($down) { $node->set('outbox.dispatch' => 'on'); }
	else { usleep(300_000); $load->stop; }
	$ledger->agrees($name);
	return ($master, $replica);
}

$ledger->post;
$ledger->agrees('messages arrive');

lose('CLUSTER FAILOVER', sub { $cluster->failover($_[1]) }, whole => 1);
lose('CLUSTER FAILOVER FORCE', sub { $cluster->failover($_[1], 'FORCE') });
$cluster->wait_until_ok;
lose('CLUSTER FAILOVER TAKEOVER', sub { $cluster->failover($_[1], 'TAKEOVER') });
$cluster->wait_until_ok;
lose('CLUSTER FAILOVER while the dispatcher is down', sub { $cluster->failover($_[1]) }, whole => 1, down => 1);
$cluster->wait_until_ok;
lose('FORCE while the dispatcher is down', sub { $cluster->failover($_[1], 'FORCE') }, down => 1);
$cluster->wait_until_ok;
lose('TAKEOVER while the dispatcher is down', sub { $cluster->failover($_[1], 'TAKEOVER') }, down => 1);
$cluster->wait_until_ok;

# The replica takes the place of its master when that ends, or hangs, and by itself.
sub fail_over
{
	my ($replica, $end) = @_;

	$cluster->wait_until_electable($replica);
	$cluster->node($replica)->command('CONFIG', 'SET', 'cluster-replica-no-failover', 'no');
	$end->();
	$cluster->wait_until_served_by($replica);
	$cluster->node($replica)->command('CONFIG', 'SET', 'cluster-replica-no-failover', 'yes');
	return;
}

my ($dead) = lose('a master is killed that had more than its replica', sub { my ($n, $replica) = @_; fail_over($replica, sub { $cluster->node($n)->kill9 }) });
$cluster->node($dead)->start;
$cluster->wait_until_ok;
($dead) = lose('... while the dispatcher is down', sub { my ($n, $replica) = @_; fail_over($replica, sub { $cluster->node($n)->kill9 }) }, down => 1);
$cluster->node($dead)->start;
$cluster->wait_until_ok;

# A master that was stopped goes on when another has taken its place: there is a batch in its socket.
my ($frozen) = lose('a master is frozen', sub { my ($n, $replica) = @_; fail_over($replica, sub { $cluster->node($n)->pause }) });
$cluster->node($frozen)->resume;
$cluster->wait_until_ok;
$ledger->post;
$ledger->agrees('it goes on as a replica');

# The windows that the fences of all lanes name; the fence without a tag is of no slot.
sub fences
{
	my @fences;
	foreach my $master (map { $cluster->node($_) } grep { $cluster->is_master($_) } $cluster->up)
	{
		push @fences, map { [ $_, (split / /, $master->command('GET', $_))[ 0, 3 ] ] } @{ $master->command('KEYS', 'outbox:fence:*') };
	}
	return @fences;
}

# A node is emptied, with its replica, when nothing is sent and all fences are at the end:
# at once, and by a restart without its data.
my ($own) = grep { !/[{]/ } map { $_->[0] } fences();
my ($emptied) = grep { $_ != $cluster->index_of($own) } map { $cluster->index_of($_) } @idle;
eventually { my %windows = map { ("$_->[1] $_->[2]" => 1) } fences(); keys %windows == 1 } 'all fences are taken along';
$cluster->node($emptied)->command('FLUSHALL');
$ledger->agrees('FLUSHALL on one node');
$ledger->post;
$ledger->agrees('... dispatch goes on');
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$cluster->restart_empty($emptied);
$cluster->wait_until_ok;
$node->set('outbox.dispatch' => 'on');
$ledger->agrees('a master that comes back empty');

is($node->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'loss'}), 0, 'nothing is reported as lost');
done_testing();
