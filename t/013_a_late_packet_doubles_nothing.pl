# A connection that was given up may still deliver what was written to it. Each batch
# compares the fence first, and so does nothing if a later one was faster.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $proxy = Proxy->new($redis);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $proxy->url . "'\noutbox.command_timeout = '1s'");
my @sent = ('first');

# Enqueues messages named after the case.
sub enqueue
{
	my ($name) = @_;
	my @names = map { "$name $_" } 1 .. 5;

	push @sent, @names;
	$node->sql("SELECT outbox_enqueue('d', '$name ' || i) FROM generate_series(1, 5) i");
	return;
}

sub arrived_once
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') >= @sent } "$name: all messages arrive";
	ok($node->wait_until_sent, '... and are known to');
	is(join(',', $redis->bodies('d')), join(',', @sent), '... in order, none twice');
	return;
}

$node->sql(q{SELECT outbox_enqueue('d', 'first')});
eventually { $redis->count('d') == 1 } 'a message passes the proxy';

# A batch is held back in the network; the dispatcher gives up and connects again.
my $connection = $proxy->opened;
$proxy->hold('overtaken');
enqueue('overtaken');
eventually { $proxy->harmed } 'a batch is held back';
$proxy->pass;
arrived_once('a batch is overtaken by another connection');
cmp_ok($proxy->opened, '>', $connection, '... which is a new one');
cmp_ok($proxy->held, '>=', 1, '... while the batch is still under way');
$proxy->release($connection);
eventually { $proxy->answered($connection) > 0 } 'it is delivered late';
arrived_once('after the late batch');
enqueue('next');
arrived_once('dispatch goes on');

# The next connection has read the fence when the old batch arrives.
$connection = $proxy->opened;
my $held = $proxy->held;
$proxy->hold('crossing');
enqueue('crossing');
eventually { $proxy->held >= $held + 2 } 'a batch is held back on a connection and on the next one';
$proxy->pass;
$proxy->release($connection);
$proxy->release($connection + 1);
eventually { $proxy->answered($connection + 1) > 0 } 'both are delivered';
arrived_once('two batches with the same messages');
enqueue('after');
arrived_once('dispatch goes on');

# Redis runs the batch, but the answer is lost.
my $harmed = $proxy->harmed;
$proxy->lose_answer('unheard');
enqueue('unheard');
eventually { $proxy->harmed > $harmed } 'an answer is lost';
$proxy->pass;
arrived_once('an answer that is lost');

# Only half a batch arrives.
$harmed = $proxy->harmed;
$proxy->cut('halved');
enqueue('halved');
eventually { $proxy->harmed > $harmed } 'a batch is cut';
$proxy->pass;
arrived_once('half a batch');

# Redis hangs with a batch in its socket, and reads it after the dispatcher has given up.
$redis->pause;
enqueue('frozen');
eventually { $node->status('redis_state') eq 'down' } 'Redis hangs with a batch in its socket';
$redis->resume;
arrived_once('a batch in the socket of a Redis that hung');

done_testing();
