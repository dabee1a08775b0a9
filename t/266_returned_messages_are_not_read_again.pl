# Under an old snapshot nothing that was returned can be removed. Even so, what one more
# message costs does not grow with their number: the indexes are entered behind them.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

use constant { MANY => 3000, MORE => 20 };

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'autovacuum = off');

my $old = $node->session;
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.instance');

my $told = 0;

# Reads how many entries of an index were read, after the dispatcher has told so.
sub entries_read
{
	my ($index) = @_;

	sleep 2;
	$node->sql("SELECT outbox_enqueue('tell', 'x')");
	$told++;
	wait_until { $redis->count("tell") == $told };
	sleep 1;
	return $node->sql("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = '$index'");
}

# Messages that are scheduled one after the other
$node->sql("SELECT outbox_enqueue('s', 'x', deliver_at => now() + '1 s') FROM generate_series(1, @{[MANY]})");
eventually { $redis->count('s') == MANY } 'many scheduled messages are sent';
my $before = entries_read('deferred_scheduled_idx');
for my $n (1 .. MORE)
{
	$node->sql(q{SELECT outbox_enqueue('s', 'x', deliver_at => now() + '100 ms')});
	wait_until { $redis->count('s') == MANY + $n };
}
cmp_ok(entries_read('deferred_scheduled_idx') - $before, '<', MANY, MORE . ' more are found behind their entries');

# The same for a destination that was paused, and one that is being drained slowly.
$node->sql(q{SELECT outbox_pause('p')});
$node->sql("SELECT outbox_enqueue('p', 'x') FROM generate_series(1, @{[MANY]})");
eventually { $node->status('deferred') == MANY } 'many messages wait';
$before = entries_read('deferred_waiting_idx');
$node->sql(q{SELECT outbox_resume('p')});
eventually { $redis->count('p') == MANY } '... and are sent';
cmp_ok(entries_read('deferred_waiting_idx') - $before, '<', 6 * MANY, '... and each is looked at a few times, however many came before it');
$old->query_safe('COMMIT');
$old->quit;

done_testing();
