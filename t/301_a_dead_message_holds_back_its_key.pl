# outbox_set_destination(..., on_dead => 'hold'): a dead message holds back the later ones of
# its key until it is retried or discarded; whatever happens meanwhile, they come in order.
# Messages of other keys are sent.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.max_attempts = 2
outbox.retry_delay = '10ms'
outbox.retry_max_delay = '10ms'
END

sub bodies { return join ' ', $redis->bodies($_[0]); }
sub enqueue { my ($dest, $key, @bodies) = @_; $node->sql("SELECT outbox_enqueue('$dest', '$_', message_id => 'id $_', key => $key)") foreach @bodies; return; }
sub states { return $node->sql("SELECT string_agg(convert_from(body, 'UTF8') || ' ' || state, ', ' ORDER BY id) FROM outbox.deferred WHERE dest = '$_[0]' AND state <> 'returned'"); }
sub becomes { my ($dest, $states, $name) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; eventually { states($dest) eq $states } $name or diag(states($dest)); return; }

# Of two partitions one refuses, that of the key "a".
my ($refusing, $accepting) = ("'a'", "'order-17'");
$node->sql(q{SELECT outbox_set_destination('orders', partitions => 2, on_dead => 'hold')});
$redis->refuse('orders:1');
$node->sql("BEGIN; SELECT outbox_enqueue('orders', body, message_id => 'id ' || body, key => key)
	FROM (VALUES ('a1', $refusing), ('x1', $accepting), ('a2', $refusing), ('x2', $accepting)) m (body, key); COMMIT");
becomes('orders', 'a1 dead, a2 held', 'a message behind a dead one of its key is held');
eventually { bodies('orders:0') eq 'x1 x2' } '... those of other keys are sent';
is($node->sql(q{SELECT message_id, key, state FROM outbox.pending}), 'id a2|a|held', '... which the views show');
is($node->sql(q{SELECT on_dead, held, dead, deferred FROM outbox.destinations WHERE dest = 'orders'}), 'hold|1|1|0', '... how many');
is($node->sql(q{SELECT message_id, key FROM outbox.dead_letters}), 'id a1|a', '... and behind which message');
is($node->sql('SELECT pending, deferred FROM outbox.status'), '1|1', '... it is pending');
$node->sql(q{SELECT outbox_pause('other'); SELECT outbox_enqueue('other', 'o1')});
eventually { $node->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'destination'}) =~ /^1 message waits for a destination that is paused\./ }
'it does not count among those that wait for their destination' or diag $node->sql('TABLE outbox.problems');
$node->sql(q{SELECT outbox_resume('other')});
eventually { bodies('other') eq 'o1' } '... of which one is sent';

# What is due later, and what comes after a restart.
$node->sql(q{SELECT outbox_enqueue('orders', 'a3', message_id => 'id a3', key => 'a', deliver_at => clock_timestamp() + '300 ms')});
becomes('orders', 'a1 dead, a2 held, a3 held', 'a scheduled message is held when it is due');
$node->stop('immediate');
$node->start;
enqueue('orders', $refusing, 'a4');
enqueue('orders', $accepting, 'x3');
becomes('orders', 'a1 dead, a2 held, a3 held, a4 held', 'after a crash they are still held');
eventually { bodies('orders:0') eq 'x1 x2 x3' } '... and others are sent';

# A dump has them, with their keys. (The copy is of another instance: it sends all of them.)
$redis->accept('orders:1');
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ], 'a dump');
$node->sql('CREATE DATABASE copy');
$node->command_ok([ 'psql', '--quiet', '--no-psqlrc', '--set', 'ON_ERROR_STOP=1', '--file', $dump, $node->connstr('copy') ], '... is restored');
eventually { bodies('orders:1') eq 'a1 a2 a3 a4' } '... with what was dead and held, in order';
is(join(' ', map { { @{ $_->[1] } }->{key} } @{ $redis->command('XRANGE', 'orders:1', '-', '+') }), 'a a a a', '... and the keys');
$node->sql('DROP DATABASE copy WITH (FORCE)');
$redis->command('DEL', 'orders:1');

# A retry of the dead one: it comes first.
enqueue('orders', $accepting, 'x4');
eventually { bodies('orders:0') =~ /x4/ } 'others are sent meanwhile';
is(bodies('orders:1'), '', 'nothing is sent that is held');
is($node->sql(q{SELECT outbox_retry('orders', 'id a1')}), 1, 'the dead one is retried');
ok($node->wait_until_sent, '... and all are sent');
is(bodies('orders:1'), 'a1 a2 a3 a4', '... in order');

# A retry that fails; then it is discarded.
$redis->command('DEL', 'orders:1');
$redis->refuse('orders:1');
enqueue('orders', $refusing, 'b1', 'b2', 'b3');
becomes('orders', 'b1 dead, b2 held, b3 held', 'another one is dead');
$node->sql(q{SELECT outbox_retry('orders')});
ok($node->poll_query_until('postgres', q{SELECT attempts = 2 AND last_attempt > first_attempt + interval '1 ms' FROM outbox.deferred WHERE state = 'dead'}), 'it is retried in vain');
becomes('orders', 'b1 dead, b2 held, b3 held', '... and holds the others again');
$redis->accept('orders:1');
is($node->sql(q{SELECT outbox_discard('orders', 'id b1')}), 1, 'it is discarded');
ok($node->wait_until_sent, 'the others are sent');
is(bodies('orders:1'), 'b2 b3', '... in order');

# A destination without keys; and the setting taken back.
$node->sql(q{SELECT outbox_set_destination('plain', on_dead => 'hold')});
$redis->refuse('plain');
enqueue('plain', 'NULL', 1, 2, 3);
becomes('plain', '1 dead, 2 held, 3 held', 'without keys, all that is later is held');
$node->sql(q{SELECT outbox_set_destination('plain', reset => '{on_dead}')});
becomes('plain', '1 dead, 2 dead, 3 dead', 'without the setting nothing is held');
$redis->accept('plain');
enqueue('plain', 'NULL', 4);
ok($node->wait_until_sent, '... and dead messages are overtaken');
is(bodies('plain'), '4', '... as ever');
$node->sql(q{SELECT outbox_set_destination('plain', on_dead => 'hold')});
enqueue('plain', 'NULL', 5);
becomes('plain', '1 dead, 2 dead, 3 dead, 5 held', 'set again, it counts for what was dead before');
$node->sql('SELECT outbox_retry()');
ok($node->wait_until_sent, 'a retry of all');
is(bodies('plain'), '4 1 2 3 5', '... keeps the order');

# Many keys with a dead message, and many messages behind them, in a table that was never analyzed.
$node->sql(q{SELECT outbox_pause('many')});
$node->sql(q{SELECT count(outbox_enqueue('many', '', key => (i % 20000)::text)) FROM generate_series(1, 300000) i});
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'many'}) == 300_000 } 'many messages wait';
$node->set('outbox.dispatch' => 'off');
$node->sql(q{UPDATE outbox.deferred SET state = 'dead' WHERE id IN (SELECT id FROM outbox.deferred WHERE dest = 'many' ORDER BY id LIMIT 20000)});
$node->sql(q{SELECT outbox_set_destination('many', on_dead => 'hold')});
$node->set('outbox.dispatch' => 'on');
enqueue('plain', 'NULL', 6);
eventually { bodies('plain') =~ /6$/ } 'where 20,000 keys have dead messages, others are sent';
eventually { $node->sql(q{SELECT state, count(*) FROM outbox.deferred WHERE dest = 'many' GROUP BY 1 ORDER BY 1}) eq "dead|20000\nheld|280000" } '... and all behind a dead one are held';

done_testing();
