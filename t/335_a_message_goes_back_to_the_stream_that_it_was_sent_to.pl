# An administrator gives a destination another stream, which is on another node of the
# Redis Cluster. What its former node loses after that is sent again to the former stream:
# the lane of the new one is ahead. So is what must wait then, because its destination is
# paused or refuses it; and so it is when the number of partitions has changed.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new;
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.retry_delay = '50ms'\n");
my ($new) = grep { $cluster->index_of($_) != $cluster->index_of('old') } map { "new:$_" } 1 .. 20;
my $former = $cluster->index_of('old');
my $replica = $cluster->replica_of($former);

sub enqueue { my ($body, $dest) = @_; $dest //= 'old'; $node->sql("SELECT outbox_enqueue('$dest', '$body')"); return; }
sub redirect { my ($stream) = @_; $node->sql("SELECT outbox_set_destination('old', stream => '$stream')"); return; }
sub sequences { return $cluster->sequence('old') . ' | ' . $cluster->sequence($new); }

enqueue('1');
eventually { $cluster->sequence('old') eq '1' } 'a message comes to the stream';
$cluster->wait_for_replica($former);
$cluster->cut_replica($replica);
enqueue('2');
$node->wait_until_sent;
redirect($new);
enqueue('3');
eventually { sequences() eq '1 2 | 3' } 'after a change the next ones come to another stream';
enqueue('4');
$node->wait_until_sent;

$cluster->failover($replica, 'TAKEOVER');
$cluster->join_replica($replica);
eventually { sequences() eq '1 2 | 3 4' } 'what its former node has lost comes to the former stream again' or diag sequences();

# The same when a dispatcher that has not seen the change reads these windows.
$cluster->wait_until_ok;
$former = $cluster->index_of('old');
$replica = $cluster->replica_of($former);
redirect('old');
enqueue('5');
eventually { sequences() eq '1 2 5 | 3 4' } 'it goes back to the former stream';
$cluster->wait_for_replica($former);
$cluster->cut_replica($replica);
enqueue('6');
$node->wait_until_sent;
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
redirect($new);
$node->restart;
enqueue('7');
$cluster->failover($replica, 'TAKEOVER');
$cluster->join_replica($replica);
$node->set('outbox.dispatch' => 'on');
eventually { sequences() eq '1 2 5 6 | 3 4 7' } 'a change while the dispatcher was down is one for what comes behind it' or diag sequences();
is($node->sql(q{SELECT string_agg(stream, ' ' ORDER BY after_window) FROM outbox.mapping WHERE dest = 'old'}), "$new old $new", 'all mappings are kept as long as their windows are');

# Lost messages that must wait do not come behind later ones in the new stream.
$cluster->wait_until_ok;
$node->sql(q{SELECT outbox_pause('old')});
lose('old');
eventually { $node->status('deferred') == 4 } 'lost messages of a destination that is paused wait';
$node->sql(q{SELECT outbox_resume('old')});
eventually { sequences() eq '1 2 5 6 | 3 4 7' } '... and come to the former stream' or diag sequences();

# The same with partitions: the number of a partition is that of the slot of the key modulo theirs.
my ($key) = grep { partition($_, 8) ne partition($_, 4) && $cluster->index_of(partition($_, 2)) != $cluster->index_of(partition($_, 4)) } map { "key $_" } 1 .. 20;
my @partitions = map { partition($key, $_) } 2, 4, 8;

sub partition { my ($of, $n) = @_; return 'orders:' . $cluster->slot_of($of) % $n; }
sub lose { my ($stream) = @_; $cluster->node_of($stream)->command('FLUSHALL'); return; }
sub order { my ($body) = @_; $node->sql("SELECT outbox_enqueue('orders', '$body', key => '$key')"); return; }
sub orders { return join ' | ', map { $cluster->sequence($_) } @partitions; }

sub spread
{
	my ($n) = @_;
	$node->sql("SELECT outbox_set_destination('orders', partitions => $n)");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until('postgres', "SELECT partitions = $n FROM outbox.mapping WHERE dest = 'orders' ORDER BY after_window DESC LIMIT 1"), "there are $n partitions");
	return;
}

spread(2);
order($_) foreach 1, 2;
$node->wait_until_sent;
spread(4);
order(3);
eventually { orders() eq '1 2 | 3 | ' } 'messages of a key are in the partitions of their time';
$node->sql(q{SELECT outbox_pause('orders')});
lose($partitions[0]);
eventually { $node->status('deferred') == 2 } 'those that are lost wait';
spread(8);
order(4);
$node->sql(q{SELECT outbox_resume('orders')});
eventually { orders() eq '1 2 | 3 | 4' } '... and come to the former partition, whatever has changed meanwhile' or diag orders();

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
lose($partitions[0]);
$cluster->refuse($partitions[0]);
$node->set('outbox.dispatch' => 'on');
eventually { $node->status('deferred') == 2 } 'they are lost once more, and refused';
$cluster->accept($partitions[0]);
eventually { orders() eq '1 2 | 3 | 4' } '... and come there when they are accepted' or diag orders();
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';
done_testing();
