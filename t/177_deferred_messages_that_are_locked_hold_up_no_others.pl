# An administrator deletes deferred messages and does not commit. Nothing waits for that
# but the messages that are locked, and those behind them for the same destination.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retry_delay = '200ms'
outbox.retry_max_delay = '200ms'
END

$node->sql(q{SELECT outbox_pause('paused')});
$node->sql(q{SELECT outbox_enqueue('paused', i::text) FROM generate_series(1, 6) i});
$node->sql(q{SELECT outbox_enqueue('later', i::text, deliver_at => now() + '3 s') FROM generate_series(1, 3) i});
eventually { $node->status('deferred') == 6 && $node->status('scheduled') == 3 } 'messages are deferred';

my $administrator = $node->session;
is($administrator->query_safe(q{BEGIN; WITH deleted AS (DELETE FROM outbox.deferred WHERE dest = 'paused' AND body = '3' OR dest = 'later' AND body = '1' RETURNING 1)
	SELECT count(*) FROM deleted}), '2', 'one of each kind is locked');
$node->sql(q{SELECT outbox_resume('paused')});

eventually { $redis->count('paused') == 2 } 'those before the locked one are sent';
eventually { $redis->count('later') == 2 } 'scheduled messages that are not locked are sent';
$node->sql(q{SELECT outbox_enqueue('other', 'x')});
eventually { $redis->count('other') == 1 } 'messages for others are sent';
is($redis->count('paused'), 2, 'those behind the locked one wait for it');

$administrator->query_safe('ROLLBACK');
eventually { $redis->count('paused') == 6 } 'all are sent after a rollback';
is_deeply([ $redis->bodies('paused') ], [ 1 .. 6 ], '... in order');
eventually { $redis->count('later') == 3 } '... and those that were scheduled';
$administrator->quit;

done_testing();
