# outbox_send() reaches each stream of a Redis Cluster on the node that has it, whichever node
# the settings name, also after its slot has moved.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster);
my @streams = ((map { "events:$_" } 1 .. 12), '{a}b', "gr\xc3\xbc\xc3\x9fe", 'x{}y', '{', 'two words');

# The bodies of a stream, on the only node that has it.
sub bodies
{
	my ($stream) = @_;
	return join ' ', map { my $one = $_; map { $_->{body} } eval { $one->entries($stream) } } $cluster->nodes;
}

$node->sql("SELECT outbox_send('$_', 'first')") foreach @streams;
is_deeply([ map { bodies($_) } @streams ], [ map { 'first' } @streams ], 'a message comes to the node of its stream');

my ($from) = grep { $cluster->node($_) == $cluster->node_of('events:1') } 0 .. 2;
$cluster->move_slot($cluster->node(0)->command('CLUSTER', 'KEYSLOT', 'events:1'), $from, ($from + 1) % 3);
$node->sql(q{SELECT outbox_send('events:1', 'second')});
is(bodies('events:1'), 'first second', 'and to where the slot has moved');

$_->command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'unknown-endpoint') foreach $cluster->nodes;
$node->sql("SELECT outbox_send('$_', 'third')") foreach @streams[ 0 .. 5 ];
is(bodies('events:2'), 'first third', 'a node without a name is where the one was that named it');

done_testing();
