# Several masters of a Redis Cluster do not answer. Finding that out takes longer than the
# lease lives; then messages for the other masters are sent. What is for those that hang follows.
# If one hangs while nothing is sent, what another one loses after that is noticed as soon as ever.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $masters = 7;
my $cluster = RedisCluster->new(masters => $masters, replicas => 0);
my $node = Outbox->create('main', redis => $cluster, conf => <<"END_OF_CONF");
outbox.redis_url = 'redis+cluster://@{[ join ',', map { '127.0.0.1:' . $cluster->node($_)->port } 0 .. 6 ]}'
outbox.connect_timeout = '5s'
outbox.command_timeout = '10s'
END_OF_CONF
my $id = $node->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my @hung = (grep { !$in_use{$_} } 0 .. $masters - 1)[ 0 .. 2 ];
my %is_hung = map { $_ => 1 } @hung;
my (@here, @there);
foreach my $stream (map { "s$_" } 1 .. 60)
{
	my $streams = $is_hung{ $cluster->index_of($stream) } ? \@there : \@here;
	push @$streams, $stream if @$streams < 6;
}
my $ledger = Ledger->new($node, $cluster, @here, @there);

$ledger->post(@here, @there);
$ledger->agrees('messages arrive on all masters');
$cluster->node($_)->pause foreach @hung;

sub others_go_on
{
	my ($name) = @_;
	my %before = map { $_ => $cluster->count($_) } @here;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$ledger->post(@here, @there);
	eventually { !grep { $cluster->count($_) == $before{$_} } @here } "$name: messages for others are sent";
	return;
}

others_go_on('three masters hang');
others_go_on('that has broken the links');
others_go_on('that is known');
$cluster->node($_)->resume foreach @hung;
$ledger->agrees('they go on');

$cluster->node($hung[0])->pause;
eventually { $node->status('redis_error') =~ /:@{[ $cluster->node($hung[0])->port ]}\b/ } 'that one hangs is noticed while nothing is sent';
$cluster->node($hung[0])->resume;
eventually { $node->status(q{redis_state = 'up' AND redis_error IS NULL}) eq 't' } '... and that it goes on' or diag $node->status('redis_error');
my ($lost) = grep { $cluster->index_of($_) == $hung[1] } @there;
$cluster->node($hung[1])->command('FLUSHALL');
eventually { $cluster->count($lost) > 0 } 'what another one has lost is sent again while nothing else is';
$ledger->agrees('... all of it');

done_testing();
