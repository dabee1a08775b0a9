# Nothing is emptied until a deduplication store has had its ids for outbox.replay_window.
# A dispatcher that is started again more often than that goes on counting where the one
# before has stopped.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END_CONF');
outbox.replay_window = '20s'
outbox.cleanup_interval = '100ms'
END_CONF
my $store = Redis->new;
my $processed = 0;

$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $store->url . "')");

# A message is processed, and its id comes into the store.
sub process
{
	$processed++;
	$node->sql("BEGIN; SELECT outbox_begin('m$processed', 'stored'); SELECT outbox_enqueue('d', '$processed'); SELECT outbox_commit(); COMMIT;");
	return wait_until { grep({ /^outbox:dedup:/ } @{ $store->command('KEYS', '*') }) == $processed };
}

# Its settings are new.
sub restart_dispatcher
{
	my $former = $node->dispatcher;
	$node->sql("ALTER DATABASE postgres SET work_mem = '@{[ 4 + $processed % 2 ]}MB'");
	return wait_until { my $now = $node->status('dispatcher_pid'); $now ne '' && $now != $former };
}

# While messages come the log rotates: its first segment is emptied in the end, and written again.
sub has_first { return $node->sql(q{SELECT count(*) FROM outbox.log_0 WHERE body = '1'}) > 0; }

ok(process(), 'an id comes into the store');
ok(has_first(), '... and its message is in the log');
my $restarts = 0;
my $deadline = time + 180;
while (has_first() && time < $deadline)
{
	last unless restart_dispatcher() && process();
	$restarts++;
}
ok(!has_first(), 'the log is emptied');
cmp_ok($restarts, '>', 3, '... while the dispatcher restarts again and again');

is($store->command('DBSIZE'), $processed + 1, 'the store has all ids, and a watermark');

# While a dispatcher that has not seen the store yet waits for it, the store loses an id.
sub has_all { return grep({ /^outbox:dedup:/ } @{ $store->command('KEYS', '*') }) == $processed; }
$store->stop;
$store->save_data;
$store->start;
eventually { $node->status('problem IS NULL') eq 't' } 'the store is there again';
ok(process(), '... and gets another id');
$store->stop;
ok(restart_dispatcher(), 'another dispatcher waits for the store');
$store->restore_data;
my $lost_at = $node->sql('SELECT clock_timestamp()');
$store->start;
eventually { has_all() } 'the id that the store has lost is added again';
my $emptied = qq{SELECT extract(epoch FROM min(since) - '$lost_at') FROM outbox.ring WHERE ring = 'log' AND state IN ('retired', 'empty') AND since > '$lost_at'};
eventually { $node->sql(q{SELECT outbox_enqueue('d', 'x')}); $node->sql($emptied) ne '' } 'the log is emptied again';
cmp_ok($node->sql($emptied), '>=', 20, '... when the store has had it for outbox.replay_window');
done_testing();
