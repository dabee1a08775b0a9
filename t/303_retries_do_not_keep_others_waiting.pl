# Each time that an administrator changes deferred messages the dispatcher reads them again.
# It rests after that for as long as it took, so that one who retries many messages one by
# one does not keep other messages waiting, nor those that are deferred themselves; neither
# does one who sets destinations. A pause takes effect at once nevertheless.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.max_attempts = 1\n");

$redis->refuse('refusing');
$node->sql(q{SELECT outbox_enqueue('refusing', n::text, message_id => 'id ' || n) FROM generate_series(1, 2) n});
eventually { $node->status('dead') == 2 } 'messages are dead';
$redis->accept('refusing');

# What makes the reading take long is a lock here.
my $session = $node->session;
$session->query_safe('BEGIN; LOCK TABLE outbox.deferred IN EXCLUSIVE MODE; UPDATE outbox.deferred SET attempts = attempts');
$node->sql(q{SELECT outbox_set_destination('unknown', maxlen => 1)});
eventually { $node->sql(q{SELECT count(*) FROM pg_locks WHERE relation = 'outbox.deferred'::regclass AND NOT granted}) == 1 } 'the dispatcher reads what is deferred';
sleep 8;
my $read_at = time;
$session->query_safe('ROLLBACK');
$session->quit;
$node->sql(q{SELECT outbox_enqueue('d', 'before')});
eventually { $redis->count('d') == 1 } '... which took long';

is($node->sql(q{SELECT outbox_retry('refusing', 'id 1')}), 1, 'a message is retried');
$node->sql(q{SELECT outbox_enqueue('d', 'meanwhile')});
eventually { $redis->count('d') == 2 } '... others are sent';
my $retried = $redis->count('refusing');
SKIP:
{
	skip('this took longer than the rest', 1) if time - $read_at > 6;
	is($retried, 0, '... before what is deferred is read again');
}
$node->sql(q{SELECT outbox_pause('d')});
$node->sql(q{SELECT outbox_enqueue('d', 'paused')});
eventually { $node->sql(q{SELECT state FROM outbox.deferred WHERE dest = 'd'}) eq 'waiting' } 'a destination is paused at once';
eventually { $redis->count('refusing') == 1 } '... and the retried message is sent';
is($node->sql(q{SELECT outbox_retry('refusing', 'id 2'); SELECT outbox_resume('d')}), "1\n", 'another one');
eventually { $redis->count('refusing') == 2 && $redis->count('d') == 3 } '... is sent, too';

# Others retry all the time, while much is deferred: what is due is sent nevertheless.
$node->sql(q{SELECT outbox_enqueue('later', n::text, deliver_at => clock_timestamp() + interval '1 day') FROM generate_series(1, 300000) n});
$node->set('outbox.max_attempts' => 1000, 'outbox.retry_delay' => '10ms', 'outbox.retry_max_delay' => '10ms');
$redis->refuse('due');
$node->sql(q{SELECT outbox_enqueue('due', n::text, message_id => 'id ' || n) FROM generate_series(1, 3000) n});
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'due' AND state = 'waiting'}) == 3000 } 'messages wait';
my @retrying = map { $node->session } 1 .. 2;
$redis->accept('due');
my $retries = 0;
while ($redis->count('due') < 3000 && $retries < 3000)
{
	$retrying[ $retries++ % 2 ]->query_safe('SELECT outbox_retry()');
}
is($redis->count('due'), 3000, 'messages that are due are sent while others retry');
is_deeply([ $redis->bodies('due') ], [ 1 .. 3000 ], '... in order');

# Nor are those kept back that are due while others set destinations one by one.
$node->sql(q{SELECT outbox_enqueue('in time', n::text, deliver_at => clock_timestamp() + interval '1 s') FROM generate_series(1, 20) n});
my $settings = 0;
while ($redis->count('in time') < 20 && $settings < 10_000)
{
	$retrying[0]->query_safe("SELECT outbox_set_destination('new " . $settings++ . "', maxlen => 1000)");
}
is($redis->count('in time'), 20, 'messages that are due are sent while others set destinations');

# Nor what waits in great number: a destination that accepts messages again gets them as fast as ever.
$node->sql(q{SELECT outbox_pause('many')});
$node->sql(q{SELECT outbox_enqueue('many', n::text) FROM generate_series(1, 2000) n});
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'many' AND state = 'waiting'}) == 2000 } 'many messages wait';
$node->sql(q{SELECT outbox_resume('many')});
$settings = 0;
while ($redis->count('many') < 2000 && $settings < 10_000)
{
	$retrying[0]->query_safe("SELECT outbox_set_destination('new " . $settings++ . "', maxlen => 3000)");
}
is($redis->count('many'), 2000, 'many that wait are sent while others set destinations');
is_deeply([ $redis->bodies('many') ], [ 1 .. 2000 ], '... in order');
$_->quit foreach @retrying;

done_testing();
