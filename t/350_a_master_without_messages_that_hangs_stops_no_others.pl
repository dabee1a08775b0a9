# A master of a Redis Cluster that no message is for, and that does not answer, takes its time
# once; then messages for the other masters are sent, whatever happens to the links. When it
# is back, it is asked again which slots it moves. So it is if consumers read there over how many
# partitions a stream is spread, and if only the slot of that key cannot be used. Masters are asked
# at the addresses that messages go to: names that they have as well may mean nothing here.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0, config => [ '--cluster-announce-hostname', 'nowhere.invalid' ]);
my $node = Outbox->create('main', redis => $cluster, conf => <<'END');
outbox.connect_timeout = '5s'
outbox.command_timeout = '10s'
END
my $id = $node->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($hung) = grep { !$in_use{$_} } 0 .. 2;
$node->set('outbox.redis_url' => 'redis+cluster://localhost:' . $cluster->node_of("outbox:lease:$id")->port);
my @streams = (grep { $cluster->index_of($_) != $hung } map { "s$_" } 1 .. 20)[ 0 .. 3 ];

# The partition of a destination is on another master, too, and the key that tells of it is there.
my ($spread) = grep { my $name = $_; $cluster->index_of("outbox:partitions:$name") == $hung && !grep { $cluster->index_of($_) == $hung } $name, "$name:0", "$name:1" } map { "p$_" } 1 .. 400;
my $key = "outbox:partitions:$spread";
my $ledger = Ledger->new($node, $cluster, @streams, $spread);
push @streams, $spread;
$ledger->spread($spread, $spread, "$spread:0", "$spread:1");
$node->sql("SELECT outbox_set_destination('$spread', partitions => 1)");
eventually { $cluster->node($hung)->command('EXISTS', $key) == 1 } 'consumers can read of the partition';

$ledger->post(@streams);
eventually { $ledger->arrived == @streams } 'messages arrive';
$cluster->node($hung)->pause;

sub cut_links
{
	$cluster->node($_)->command('CLIENT', 'KILL', 'TYPE', 'normal') foreach grep { $_ != $hung } 0 .. 2;
	return;
}

# How often the node that hangs, or did, has told which slots it moves.
sub asked
{
	return $cluster->node($hung)->command('INFO', 'commandstats') =~ /cluster\|nodes:calls=(\d+)/ ? $1 : 0;
}

foreach my $round (2 .. 4)
{
	cut_links();
	$ledger->post(@streams);
	eventually { (eval { $ledger->arrived } // 0) == $round * @streams } 'links are cut while it hangs: messages arrive';
}
$cluster->node($hung)->resume;
my $asked = asked();
eventually { cut_links(); $ledger->post(@streams); sleep 1; asked() > $asked } 'it is asked again when it is back';
$ledger->agrees('all messages are there, in order');

# The number changes while the key has gone to a node that its slot is on its way to.
$cluster->move_slot($cluster->slot_of($key), $hung, ($hung + 1) % 3, only => qr/^outbox:partitions/);
$node->sql("SELECT outbox_set_destination('$spread', partitions => 2)");
cut_links();
$ledger->post(@streams);
$ledger->agrees('messages are sent while the slot of that key is torn');
eventually { $node->status('redis_error') =~ /hash slot @{[ $cluster->slot_of($key) ]}\b/ } '... which is said';
$cluster->fix;
eventually { $cluster->node_of($key)->command('HGET', $key, 'partitions') eq '2' } 'consumers can read of the change when the slot is whole';
$ledger->post(@streams);
$ledger->agrees('... and messages go on');

done_testing();
