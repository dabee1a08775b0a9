# While nothing is sent, the fences of a Redis Cluster are compared now and then, so that a loss is
# noticed. A master that has hung for a moment, and then answered, does not put that off.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster, conf => <<'END');
outbox.command_timeout = '60s'
outbox.replay_window = '2h'
END
my $id = $node->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($hung) = grep { !$in_use{$_} } 0 .. 2;
my ($stream) = grep { $cluster->index_of($_) == $hung } map { "s$_" } 1 .. 20;
my $master = $cluster->node($hung);

# How often the script has been run there: it compares the fence.
sub compared { return $master->command('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/ ? $1 : 0; }

$node->sql("SELECT outbox_enqueue('$stream', 'x')");
eventually { $cluster->count($stream) == 1 } 'a message arrives';
my $before = compared();
eventually { compared() > $before + 2 } 'fences are compared while nothing is sent';
$before = compared();
$master->pause;
sleep 8;
$master->resume;
eventually { compared() > $before } 'a master hangs, and answers';
$master->command('FLUSHALL');
eventually { $cluster->count($stream) == 1 } 'what it loses after that is noticed, and sent again' or diag $node->status('redis_error');

done_testing();
