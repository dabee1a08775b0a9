# A transaction that commits is sent at once, although others are open; those are sent
# when they commit, however long that takes.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '1s'
outbox.retention = '1s'
outbox.cleanup_interval = '100ms'
END

# Three transactions stay open: one that enqueued before the others, one that holds a
# snapshot, one that only has a transaction id.
my @open = map { $node->session } 1 .. 3;
$open[0]->query_safe(q{SET outbox.retention = '1h'});    # the others keep their records for a second
$open[0]->query_safe(q{BEGIN; SELECT outbox_begin('long', concurrency => 'pessimistic'); SELECT outbox_enqueue('d', 'long 1')});
$open[1]->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1});
$open[2]->query_safe(q{BEGIN; SELECT pg_current_xact_id()});

$node->sql(q{SELECT outbox_enqueue('d', 'short 1')});
eventually { $redis->count('d') == 1 } 'a message is sent while other transactions are open';

$node->sql("SELECT outbox_enqueue('d', 'short $_')") foreach 2 .. 5;
eventually { $redis->count('d') == 5 } '... and the next ones';
is($redis->sequence('d'), join(' ', map { "short $_" } 1 .. 5), '... only those that committed');

# The rings rotate several times while the transaction is open.
my $generation = q{SELECT max(generation) FROM outbox.ring WHERE ring = 'log'};
my $start = $node->sql($generation);
my $n = 5;
eventually { $n++; $node->sql("SELECT outbox_enqueue('d', 'short $n')"); $node->sql($generation) > $start + 5 }
'the log rotates meanwhile';
eventually { $redis->count('d') == $n } '... and everything is sent';

$open[0]->query_safe(q{SELECT outbox_enqueue('d', 'long 2'); SELECT outbox_commit(); COMMIT});
eventually { $redis->count('d') == $n + 2 } 'the long transaction is sent after its commit';
is(join(' ', grep { /long/ } $redis->bodies('d')), 'long 1 long 2', '... in order');
$_->quit foreach @open;

done_testing();
