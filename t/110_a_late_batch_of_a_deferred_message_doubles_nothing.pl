# A batch is held back in the network; over the next connection its message is refused and
# deferred, so the fence need not move. When the batch arrives late, it must do nothing.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $proxy = Proxy->new($redis);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $proxy->url . "'\noutbox.command_timeout = '1s'");


$node->sql(q{SELECT outbox_enqueue('good', '0')});
eventually { $redis->count('good') == 1 } 'a message passes the proxy';

# The message is alone in its window, or has others before or behind it.
my $round = 0;
foreach my $others ([], ['before'], ['behind'], [ 'before', 'behind' ])
{
	my $name = 'with ' . (join(' and ', @$others) || 'nothing') . ' around it';
	my $stream = 'd' . ++$round;
	my @calls = map { "SELECT outbox_enqueue('$_->[0]', '$_->[1]')" } (
		(map { [ 'good', "$round $_" ] } grep { $_ eq 'before' } @$others),
		[ $stream, 'held back' ],
		(map { [ 'good', "$round $_" ] } grep { $_ eq 'behind' } @$others));

	$node->set('outbox.retry_delay' => '1h', 'outbox.retry_max_delay' => '1h');
	eventually { $node->status('dispatcher_state') eq 'idle' } "$name: ready";
	my $expected = $redis->sequence('good') . join '', map { " $round $_" } @$others;
	my $connection = $proxy->opened;
	my $harmed = $proxy->harmed;
	$proxy->hold('held back');
	$node->sql('BEGIN; ' . join('; ', @calls) . '; COMMIT');
	eventually { $proxy->harmed > $harmed } '... its batch is held back';
	$connection = $proxy->opened;
	$redis->refuse($stream);
	$proxy->pass;
	eventually { $node->status('deferred') == 1 } '... over another connection it is refused';
	$redis->accept($stream);
	$proxy->release($_) foreach 1 .. $connection;
	eventually { $proxy->answered($connection) > 0 } '... its destination is healed when the late batch arrives';
	is($redis->count($stream), 0, '... which does nothing');

	$node->set('outbox.retry_delay' => '100ms', 'outbox.retry_max_delay' => '100ms');
	$node->sql(q{UPDATE outbox.deferred SET next_attempt = now() WHERE state = 'waiting'});
	eventually { $redis->count($stream) > 0 } '... it is tried again and arrives';
	ok($node->wait_until_sent, '... for good');
	is($redis->sequence($stream), 'held back', '... once');
	is($redis->sequence('good'), $expected, '... as the others');
}

done_testing();
