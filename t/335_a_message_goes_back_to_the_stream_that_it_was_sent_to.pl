# An administrator gives a destination another stream, which is on another node of the
# Redis Cluster. What its former node loses after that is sent again to the former stream:
# the lane of the new one is ahead.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new;
my $node = Outbox->create('main', redis => $cluster);
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
is($node->status('problem IS NULL'), 't', 'nothing is wrong');
done_testing();
