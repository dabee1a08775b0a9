# The workers of examples/partitions share partitions that are spread over a Redis Cluster. Slots
# of streams, of the leases and of the layout move, a worker is killed, and the number of
# partitions changes: no worker ends for that, and the messages of each key are handled in
# their order, each once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;
use Workers;

python() or plan skip_all => 'no python3 with psycopg and redis';

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster);
my $workers = Workers->new(node => $node, redis => $cluster);

# Moves the slot of a key to the next master, while messages come.
sub move_slot
{
	my ($key) = @_;
	my $from = $cluster->index_of($key);
	$workers->send_messages(10);
	$cluster->move_slot($cluster->slot_of($key), $from, ($from + 1) % 3);
	return;
}

$workers->spread(8);
$workers->start('a', 'python');
$workers->start('b', 'node');
$workers->start('c', 'python');
eventually { $workers->shares eq 'a=3 b=3 c=3' } 'three workers share eight partitions and the stream itself';
my @keys = ('orders:1', 'orders:4', '{billing:orders}:workers', 'outbox:partitions:orders');
move_slot($_) foreach @keys;
$workers->check_books('slots move');

$workers->send_messages(20);
wait_until { $workers->handled > $workers->sent - 24 * 15 };
$workers->end('KILL', 'a');
$workers->start('d', 'node');
move_slot('orders:3');
$workers->spread(5);
move_slot('orders:3');
eventually { $workers->shares eq 'b=2 c=2 d=2' } 'the partitions of a worker that was killed go to others';
$workers->check_books('one is killed, one joins, and the number of partitions changes');
is($workers->end('TERM', $_), '', "worker $_ had no error") foreach $workers->names;

done_testing();
