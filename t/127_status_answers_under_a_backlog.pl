# outbox.status reads few blocks, also beside a huge transaction in progress, one that
# was rolled back, or a backlog. Blocks are counted because time depends on the machine.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $messages = 150_000;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $enqueue = "SELECT count(outbox_enqueue('d', 'x')) FROM generate_series(1, $messages)";

# Blocks that a query of the view touches. Only the first query counts, for it marks dead rows for later ones.
sub blocks
{
	my ($hit, $read) = (0, 0);
	my $plan = $node->sql('EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) SELECT * FROM outbox.status');

	($hit) = $plan =~ /Buffers: shared.*?hit=(\d+)/;
	($read) = $plan =~ /Buffers: shared.*?read=(\d+)/;
	return ($hit // 0) + ($read // 0);
}

# Dispatch is off, so no window hides what is pending.
$node->sql("SELECT outbox_enqueue('d', 'x')");
ok($node->wait_until_sent, 'idle');
my $idle = blocks();
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';

my $session = $node->session;
$session->query_safe("BEGIN; $enqueue;");
$node->sql("SELECT outbox_enqueue('d', 'a younger transaction')");
cmp_ok(blocks(), '<', $idle + 300, 'the rows of a transaction in progress are not looked at');
is($node->status('pending'), 1, '... but a younger one is seen');
$session->query_safe('ROLLBACK;');
cmp_ok(blocks(), '<', $idle + 300, 'nor are they when it is rolled back');
is($node->status('pending'), 1, '... and the younger one is still seen');
$session->quit;

$node->sql($enqueue);
cmp_ok(blocks(), '<', $idle + 300, 'nor are all when it is committed');
cmp_ok($node->status('pending'), '>=', $messages, '... but their number is estimated');

# The dispatcher skips what was rolled back as well, and finds the rest.
$node->set('outbox.dispatch' => 'on');
ok($node->wait_until_sent, 'it is sent');
is($redis->count('d'), $messages + 2, '... each message once');

# What is published while the view is read was opened before.
my $load = $node->start_load(clients => 2, scripts => [q{SELECT outbox_enqueue('d', 'y');}]);
is($node->sql(<<'END'), 0, 'no window is published that was not opened');
CREATE TEMP TABLE seen (windows bigint);
DO $$ BEGIN FOR i IN 1 .. 10000 LOOP INSERT INTO seen SELECT windows FROM outbox.status; END LOOP; END $$;
SELECT count(*) FROM seen WHERE windows < 0;
END
$load->stop;

done_testing();
