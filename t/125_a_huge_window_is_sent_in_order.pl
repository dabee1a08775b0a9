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

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';

# The older transaction enqueues after the other one has committed.
my $older = $node->session;
$older->query_safe(q{BEGIN; SELECT outbox_enqueue('first', 'x');});
$node->sql(enqueue(0));
$older->query_safe(enqueue($messages) . 'COMMIT;');
$older->quit;
$node->set('outbox.dispatch' => 'on');

# The next dispatcher finds the place within the window.
ok($node->poll_query_until('postgres', 'SELECT sent >= 1000 AND windows = 1 FROM outbox.status'), 'it is being sent, in one window');
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
ok($node->wait_until_sent, 'all is sent, though the dispatcher was ended meanwhile');
is($redis->cli('EVAL', $in_order, 0, $destinations), 2 * $messages . ' messages, 0 out of order', 'each message once, and in order');

# No files are left of sorting it.
my $temporary = 'SELECT count(*) FROM pg_ls_tmpdir()';
is($node->sql($temporary), 0, 'no temporary file is left');

done_testing();
