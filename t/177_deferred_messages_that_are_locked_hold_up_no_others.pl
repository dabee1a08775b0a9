# An administrator deletes deferred messages and does not commit. Nothing waits for that
# but the messages that are locked, and those behind them for the same destination; or all
# for the same destination, where a dead message holds back others.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.max_attempts = 2
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
eventually { $node->status('problem') =~ /^\d+ messages wait that were deferred, .* another session has locked rows/ } '... as problem says, and not that they are paused';

$administrator->query_safe('ROLLBACK');
eventually { $redis->count('paused') == 6 } 'all are sent after a rollback';
is_deeply([ $redis->bodies('paused') ], [ 1 .. 6 ], '... in order');
eventually { $redis->count('later') == 3 } '... and those that were scheduled';

# Messages are locked that are to be let go, because the dead one before them is discarded.
sub states { return $node->sql(q{SELECT string_agg(state, ' ' ORDER BY id) FROM outbox.deferred WHERE dest = 'held' AND state IN ('waiting', 'held', 'dead')}); }
$node->sql(q{SELECT outbox_set_destination('held', on_dead => 'hold')});
$redis->refuse('held');
$node->sql(q{SELECT outbox_enqueue('held', i::text, message_id => 'id ' || i) FROM generate_series(1, 4) i});
eventually { states() eq 'dead held held held' } 'a dead message holds back others';
$administrator->query_safe(q{BEGIN; DELETE FROM outbox.deferred WHERE dest = 'held' AND body = '3'});
$redis->accept('held');
$node->sql(q{SELECT outbox_discard('held', 'id 1')});
$node->sql(q{SELECT outbox_enqueue('held', '5'), outbox_enqueue('other', 'y')});
eventually { $redis->count('other') == 2 } '... is discarded while one of them is locked: messages for others are sent';
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'held' AND body = '5'}) == 1 } '... later ones of the destination wait';
eventually { $node->status('problem') =~ /another session has locked rows/ } '... as problem says';
$administrator->query_safe('ROLLBACK');
eventually { $redis->count('held') == 4 } 'all are sent after a rollback';
is_deeply([ $redis->bodies('held') ], [ 2 .. 5 ], '... in order');

# The only one that is to be let go is locked.
$node->sql(q{SELECT outbox_set_destination('only', on_dead => 'hold')});
$redis->refuse('only');
$node->sql(q{SELECT outbox_enqueue('only', i::text, message_id => 'only ' || i) FROM generate_series(1, 2) i});
eventually { $node->sql(q{SELECT held FROM outbox.destinations WHERE dest = 'only'}) == 1 } 'a dead message holds back one';
eventually { $node->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'destination'}) == 0 } '... which waits for it, and for no destination';
$administrator->query_safe(q{BEGIN; DELETE FROM outbox.deferred WHERE dest = 'only' AND body = '2'});
$redis->accept('only');
$node->sql(q{SELECT outbox_discard('only', 'only 1')});
eventually { $node->status('problem') =~ /^1 message waits that was deferred, .* another session has locked rows/ } '... the dead one is discarded while that one is locked: problem says so';
$administrator->query_safe('ROLLBACK');
eventually { $redis->count('only') == 1 } '... it is sent after a rollback';
eventually { $node->status('problem IS NULL') eq 't' } '... and there is no problem';

# Messages are locked that are to be held, because the one before them dies.
$redis->command('DEL', 'held');
$redis->refuse('held');
$node->set('outbox.max_attempts' => '1000000');
$node->sql(q{SELECT outbox_enqueue('held', i::text, message_id => 'id ' || i) FROM generate_series(6, 9) i});
eventually { states() eq 'waiting waiting waiting waiting' } 'messages wait for their destination';
$administrator->query_safe(q{BEGIN; DELETE FROM outbox.deferred WHERE dest = 'held' AND body = '8'});
$node->set('outbox.max_attempts' => '2');
eventually { states() eq 'dead held waiting held' } 'the first one dies while another one is locked';
$node->sql(q{SELECT outbox_enqueue('other', 'z')});
eventually { $redis->count('other') == 3 } '... messages for others are sent';
$redis->accept('held');
$administrator->query_safe('ROLLBACK');
eventually { states() eq 'dead held held held' } '... and that one is held after a rollback';
$node->sql(q{SELECT outbox_retry('held')});
eventually { $redis->count('held') == 4 } 'all are sent after a retry';
is_deeply([ $redis->bodies('held') ], [ 6 .. 9 ], '... in order');
$administrator->quit;

# The row of a message is deleted that is under way, and is refused then: the dispatcher waits for
# the session that deletes it.
$node->set('outbox.max_attempts' => '1000000', 'outbox.retry_delay' => '10ms', 'outbox.retry_max_delay' => '10ms');
$redis->refuse('again');
$node->sql(q{SELECT outbox_enqueue('again', 'x')});
$node->sql(q{DO $$
BEGIN
	LOOP
		PERFORM FROM outbox.deferred WHERE dest = 'again' AND state = 'returned' FOR UPDATE;
		EXIT WHEN FOUND;
		COMMIT;
	END LOOP;
	DELETE FROM outbox.deferred WHERE dest = 'again' AND state = 'returned';
	WHILE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND pid = } . $node->dispatcher . q{) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$});
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'again' AND state = 'waiting'}) == 1 } 'a message is deferred whose row was deleted meanwhile';
$redis->accept('again');
eventually { $redis->count('again') == 1 } '... and not lost';

done_testing();
