# A message that its destination refuses outbox.max_attempts times is dead: it is kept,
# shown, and can be retried or discarded. Later messages overtake it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.max_attempts = 3');

sub dead { return $node->status('dead'); }

sub handle
{
	my ($msgid, $dest) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid'); SELECT outbox_enqueue('$dest', '$msgid', '{\"h\": 1}', 'id $msgid'); SELECT outbox_commit(); COMMIT");
	return;
}

$redis->refuse('bad');
my $log = $node->log_position;
handle('first', 'bad');
eventually { dead() == 1 } 'a refused message is dead in the end';
eventually { $node->log_since($log) =~ /message "id first" for destination "bad" is dead after 3 attempts: WRONGTYPE/ } '... and the log says so';
is($node->sql('SELECT message_id, dest, cause, headers, body, attempts FROM outbox.dead_letters'),
	'id first|bad|first|{"h": 1}|\x6669727374|3', '... to be seen whole');
like($node->sql('SELECT last_error FROM outbox.dead_letters'), qr/^WRONGTYPE/, '... with what Redis said');
is($node->sql(q{SELECT last_attempt - first_attempt BETWEEN '0.2 s' AND '1 min', first_attempt > enqueued_at, last_attempt <= now() FROM outbox.dead_letters}),
	't|t|t', '... and when; the second delay is twice the first');
is($node->sql(q{SELECT dest, deferred, dead, last_error LIKE 'WRONGTYPE%' FROM outbox.destinations}), 'bad|0|1|t', 'outbox.destinations counts it');
like($node->status('problem'), qr/^1 message is dead\. See outbox.dead_letters/, '... and problem says so');
is($node->status('pending'), 0, '... it is not pending');
cmp_ok(seconds { is($node->sql(q{SELECT outbox_wait('first', timeout => '10 min')}), 'f', 'outbox_wait does not wait for it') }, '<', 150, '... at all');

$redis->accept('bad');
handle($_, 'bad') foreach 'second', 'third';
ok($node->wait_until_sent, 'later messages overtake it');
is($redis->sequence('bad'), 'second third', '... in order');

is($node->sql(q{SELECT outbox_retry('bad', 'id second')}), 0, 'outbox_retry of what is not dead');
is($node->sql(q{SELECT outbox_retry('other')}), 0, '... of another destination');
is($node->sql(q{SELECT outbox_retry('bad', 'id first')}), 1, 'outbox_retry of the dead message');
eventually { $redis->count('bad') == 3 } '... brings it back';
ok($node->wait_until_sent, '... for good');
is($redis->sequence('bad'), 'second third first', '... once');
is($node->sql(q{SELECT outbox_wait('first')}), 't', '... and outbox_wait knows');
is(dead(), 0, '... nothing is dead');
eventually { $node->status('problem IS NULL') eq 't' } '... nor wrong';

# Several destinations, and a restart; some messages are retried, one is discarded.
$redis->refuse('one', 'two');
handle("one $_", 'one') foreach 1 .. 3;
handle("two $_", 'two') foreach 1 .. 3;
handle('fine', 'fine');
eventually { $redis->count('fine') == 1 } 'other destinations go on';
eventually { dead() == 6 } 'all messages of two destinations die';
$node->restart;
eventually { $node->status(q{dispatcher_state, dead}) eq 'idle|6' } '... and stay so through a restart';
is($node->sql(q{SELECT outbox_retry('one')}), 3, 'one destination is tried again');
eventually { $node->sql(q{SELECT count(*) FROM outbox.dead_letters WHERE dest = 'one' AND attempts = 3 AND last_attempt > now() - interval '1 minute'}) == 3 && dead() == 6 } '... they get all their attempts again, and die again';
is($node->sql('SELECT string_agg(DISTINCT attempts::text, $$ $$) FROM outbox.dead_letters'), '3', '... after as many');
is($node->sql(q{SELECT outbox_discard('one', 'id one 2')}), 1, 'a dead message is discarded');
is($node->sql(q{SELECT outbox_discard('one', 'id one 2')}), 0, '... once');
eventually { dead() == 5 } '... and is not dead any more';
$redis->accept('one', 'two');
is($node->sql('SELECT outbox_retry()'), 5, 'all dead messages are tried again');
eventually { $redis->count('one') + $redis->count('two') >= 5 } '... and arrive';
ok($node->wait_until_sent, '... all of them');
is($redis->sequence('one') . ', ' . $redis->sequence('two'), 'one 1 one 3, two 1 two 2 two 3', '... in order, once, but for the discarded one');

# While Redis is away no attempt is counted.
$node->set('outbox.max_attempts' => 100, 'outbox.retry_max_delay' => '200ms');
$redis->refuse('bad');
handle('patient', 'bad');
eventually { $node->sql(q{SELECT attempts >= 6 FROM outbox.deferred WHERE message_id = 'id patient'}) eq 't' } 'a message has been tried';
is($node->sql(q{SELECT next_attempt - last_attempt BETWEEN '0.1 s' AND '1 s' FROM outbox.deferred WHERE message_id = 'id patient'}), 't', '... and outbox.retry_max_delay, not twice the last time, passes until the next attempt');
$redis->stop;
eventually { $node->status('redis_state') eq 'down' } 'Redis is away';
my $attempts = $node->sql(q{SELECT attempts FROM outbox.deferred WHERE message_id = 'id patient'});
ok($node->poll_query_until('postgres', q{SELECT next_attempt < now() - interval '1 s' FROM outbox.deferred WHERE message_id = 'id patient'}), '... and it is long due');
is($node->sql(q{SELECT attempts FROM outbox.deferred WHERE message_id = 'id patient'}), $attempts, '... but no attempt is counted');
$redis->start;
eventually { $node->sql(q{SELECT attempts FROM outbox.deferred WHERE message_id = 'id patient'}) > $attempts } 'with Redis it is tried again';
$redis->accept('bad');
eventually { $redis->sequence('bad') eq 'second third first patient' } '... and arrives';

done_testing();
