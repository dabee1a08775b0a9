# What was enqueued while dispatch was off is one window, with more messages than
# are kept in memory, of transactions that ran at the same time, for many destinations.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $sessions = 3;
my $messages = 120_000;
my $destinations = 300;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# For each destination: the messages of each session come in the order of its calls.
my $in_order = <<'END';
local wrong, count = 0, 0
for d = 0, ARGV[1] - 1 do
	local expected = {}
	for _, entry in ipairs(redis.call('XRANGE', 'd' .. d, '-', '+')) do
		local session, i = string.match(entry[2][6], '^(%d+) (%d+)$')
		if tonumber(i) ~= (expected[session] or d) then wrong = wrong + 1 end
		expected[session] = tonumber(i) + ARGV[1]
		count = count + 1
	end
end
return count .. ' messages, ' .. wrong .. ' out of order'
END

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->load(
	clients => $sessions,
	transactions => 1,
	scripts => ["SELECT count(outbox_enqueue('d' || i % $destinations, :client_id || ' ' || i)) FROM generate_series(0, $messages - 1) i"]);
$node->set('outbox.dispatch' => 'on');

# Its successor finds the place amid the window.
ok($node->poll_query_until('postgres', 'SELECT sent >= 1000 FROM outbox.status'), 'it is being sent');
is($node->status('windows'), 1, '... in one window');
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
ok($node->wait_until_sent, 'all is sent, though the dispatcher was ended amid it');
is($redis->cli('EVAL', $in_order, 0, $destinations), $sessions * $messages . ' messages, 0 out of order', 'each message once, and in order');

# Nothing is left of the files in which it was sorted.
my $temporary = 'SELECT count(*) FROM pg_ls_tmpdir()';
is($node->sql($temporary), 0, 'no temporary file is left');

done_testing();
