# A clean stop notes what was published, also right behind the last message: the next
# dispatcher, and a dump, know that nothing is pending.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# What the tables show, without a dispatcher that asks Redis.
sub pending_after
{
	my ($stop) = @_;

	$stop->();
	$node->append_conf('postgresql.conf', 'outbox.dispatch = off');
	$node->start;
	eventually { $node->status('dispatcher_state') eq 'off' } '... the dispatcher is there again, but off';
	my $pending = $node->status('pending');
	$node->adjust_conf('postgresql.conf', 'outbox.dispatch', undef);
	$node->reload;
	eventually { $node->status('dispatcher_state') eq 'idle' } '... and on';
	return $pending;
}

foreach my $mode ('fast', 'smart')
{
	my $count = $redis->count('d');
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	eventually { $redis->count('d') == $count + 1 } "$mode: a message arrives";
	ok($node->wait_until_sent, '... and the dispatcher knows');
	is(pending_after(sub { $node->stop($mode) }), 0, '... as is known after the stop');
}

# The stop does not wait for a table that is locked.
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
eventually { $redis->count('d') == 3 } 'a message arrives while a window table is about to be locked';
my $session = $node->session;
$session->query('BEGIN; LOCK outbox.window_0, outbox.window_1, outbox.window_2, outbox.window_3 IN SHARE MODE');
cmp_ok(seconds { $node->stop('fast') }, '<', 170, '... the stop does not wait for the lock');
$node->start;
eval { $session->quit };
ok($node->wait_until_sent, '... and what was not noted is found in Redis');

# Without Redis, nothing more is noted.
$redis->stop;
$node->sql(q{SELECT outbox_enqueue('d', 'y')});
eventually { $node->status('redis_state') eq 'down' } 'Redis is gone';
$node->restart;
is($node->status('pending'), 1, '... what it lacks stays pending');
$redis->start;
eventually { $redis->count('d') == 4 } '... and is sent';
ok($node->wait_until_sent, '... for good');
is($redis->count('d'), 4, 'nothing was sent twice');

done_testing();
