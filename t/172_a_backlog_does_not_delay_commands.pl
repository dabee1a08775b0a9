# While a large window is sent, outbox_pause(), outbox.dispatch = off and cleanup take
# effect within a moment; then the window goes on where it was.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;
use Time::HiRes 'usleep';

use constant MESSAGES => 50_000;

# Redis is so far away that sending the window takes minutes, however long this process is interrupted.
my $redis = Redis->new;
my $proxy = Proxy->new($redis);
$proxy->delay(20);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $proxy->url . "'\noutbox.dispatch = off\noutbox.batch_size = 1");

# Waits until so many more messages have arrived, which are not all of them.
sub sends
{
	my $before = $redis->count('d');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') > $before + 200 } 'a backlog is being sent';
	return;
}

# Checks that no more messages arrive.
sub stands_still
{
	my ($name) = @_;
	my $sent = $redis->count('d');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	cmp_ok($sent, '<', MESSAGES, $name);
	usleep(300_000);
	is($redis->count('d'), $sent, '... nothing more is sent');
	return;
}

$node->sql("SELECT outbox_enqueue('d', n::text) FROM generate_series(1, @{[MESSAGES]}) n");
$node->set('outbox.dispatch' => 'on');
sends();
$node->sql('SELECT outbox_cleanup()');
cmp_ok($redis->count('d'), '<', MESSAGES, 'a cleanup does not wait for its end');

$node->sql('SELECT outbox_pause()');
eventually { $node->status('dispatcher_state') eq 'paused' } 'outbox_pause() takes effect';
stands_still('... before its end');
$node->sql('SELECT outbox_resume()');
sends();

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'outbox.dispatch = off takes effect';
stands_still('... before its end');
$node->set('outbox.dispatch' => 'on');
sends();

$node->sql(q{SELECT outbox_pause('d')});
eventually { $node->status('deferred') > 0 } 'so is the pause of its destination';
stands_still('... before its end');
$node->sql(q{SELECT outbox_resume('d')});

$proxy->pass;
$node->set('outbox.batch_size' => 1000);
ok($node->wait_until_sent, 'all is sent');
ok($redis->sequence('d') eq join(' ', 1 .. MESSAGES), '... in order, none twice');

done_testing();
