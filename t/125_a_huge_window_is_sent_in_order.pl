# What was enqueued while dispatch was off is sent as one window. Here it has more
# messages than are kept in memory, transactions whose order is not that of their calls,
# and many destinations.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $messages = 180_000;
my $destinations = 300;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# Each destination has every 300th message, in the order of the calls.
my $in_order = <<'END';
local wrong, count = 0, 0
for d = 0, ARGV[1] - 1 do
	local expected = d
	for _, entry in ipairs(redis.call('XRANGE', 'd' .. d, '-', '+')) do
		local i = tonumber(entry[2][6])
		if i ~= expected then wrong = wrong + 1 end
		expected = i + ARGV[1]
		count = count + 1
	end
end
return count .. ' messages, ' .. wrong .. ' out of order'
END

# Enqueues messages with numbers from here on.
sub enqueue
{
	my ($from) = @_;
	return "SELECT count(outbox_enqueue('d' || i % $destinations, i::text)) FROM generate_series($from, $from + $messages - 1) i;";
}

# The older transaction enqueues after the other one has committed. The next dispatcher finds the
# place within the window; where all is sent before the dispatcher is stopped, there is more.
my $sent = 0;
eventually
{
	$node->set('outbox.dispatch' => 'off');
	wait_until { $node->status('dispatcher_state') eq 'off' };
	my $older = $node->session;
	$older->query_safe(q{BEGIN; SELECT outbox_enqueue('first', 'x');});
	$node->sql(enqueue($sent));
	$older->query_safe(enqueue($sent + $messages) . 'COMMIT;');
	$older->quit;
	my $last = 'd' . ($destinations - 1);
	my $before = $redis->count($last);
	my $dispatcher = $node->dispatcher;
	$node->set('outbox.dispatch' => 'on');
	wait_until { $redis->count($last) >= $before + 5 };
	kill 'STOP', $dispatcher;
	my $is_amid = $redis->count($last) < $before + 2 * $messages / $destinations && $node->status('windows') == 1;
	$node->sql("SELECT pg_terminate_backend($dispatcher)");
	kill 'CONT', $dispatcher;
	$sent += 2 * $messages;
	wait_until { $node->dispatcher != $dispatcher } and $node->wait_until_sent;
	$is_amid;
}
'all is sent as one window, though the dispatcher is ended meanwhile';
is($redis->cli('EVAL', $in_order, 0, $destinations), "$sent messages, 0 out of order", 'each message once, and in order');

# No files are left of sorting it.
my $temporary = 'SELECT count(*) FROM pg_ls_tmpdir()';
is($node->sql($temporary), 0, 'no temporary file is left');

done_testing();
