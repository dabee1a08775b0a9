# To a distant Redis windows are opened also while others are under way; but what is due is
# returned to the log when all are sent. So none is opened while something is due, or is
# tried: under a steady load all would never be sent.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $proxy = Proxy->new($redis);
# All the time, as the shortest round trip of a connection counts.
$proxy->delay(1500);
my $node = Outbox->create('main', conf => "outbox.redis_url = '@{[ $proxy->url ]}'");

sub enqueue { my ($stream) = @_; return "SELECT outbox_enqueue('$stream', 'x')"; }

$node->sql(enqueue('first'));
eventually { $redis->count('first') == 1 } 'messages are sent';
$node->wait_until_sent;

# One is due while the answer to another one is waited for. Without that rule what is enqueued then would
# arrive before it, as it does not have to wait for that answer.
sub sleep_until { my ($time) = @_; return "SELECT pg_sleep(extract(epoch FROM next_attempt - clock_timestamp()) $time) FROM outbox.deferred WHERE dest = 'scheduled'"; }

$node->sql(q{SELECT outbox_enqueue('scheduled', 'x', deliver_at => clock_timestamp() + '5 s')});
ok($node->poll_query_until('postgres', 'SELECT scheduled = 1 AND windows = 0 FROM outbox.status'), 'a message is scheduled');
$node->sql(sleep_until('- 1') . '; ' . enqueue('under way'));
$node->sql(sleep_until('+ 0.1'));
$node->sql(enqueue('later'));
eventually { $redis->count('later') == 1 } '... one that was enqueued then arrives';
is($redis->count('scheduled'), 1, '... not before it');

$redis->refuse('refusing');
$node->sql('BEGIN; ' . join('; ', map { enqueue('refusing') } 1 .. 2) . '; COMMIT');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM outbox.deferred WHERE dest = 'refusing'}), 'two messages are refused');
$redis->accept('refusing');
ok( $node->poll_query_until('postgres',
		q{SELECT windows > 0 AND EXISTS (SELECT FROM outbox.deferred WHERE dest = 'refusing' AND state = 'returned') FROM outbox.status}),
	'... the first one is tried again');
$node->sql(enqueue('last'));
eventually { $redis->count('last') == 1 } '... a message that was enqueued then arrives';
is($redis->count('refusing'), 2, '... not before the second one');

done_testing();
