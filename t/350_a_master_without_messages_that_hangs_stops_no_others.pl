# A master of a Redis Cluster that no message is for, and that does not answer, takes its time
# once; then messages for the other masters are sent, whatever happens to the links. When it
# is back, it is asked again which slots it moves.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster, conf => <<'END');
outbox.connect_timeout = '5s'
outbox.command_timeout = '10s'
END
my $id = $node->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($hung) = grep { !$in_use{$_} } 0 .. 2;
my @streams = (grep { $cluster->index_of($_) != $hung } map { "s$_" } 1 .. 20)[ 0 .. 3 ];
my $ledger = Ledger->new($node, $cluster, @streams);

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

done_testing();
