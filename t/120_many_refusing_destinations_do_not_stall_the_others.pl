# Thousands of destinations refuse at once, for two reasons, and are tried again
# and again. The others go on, and nothing is lost, doubled or disordered.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils qw(slurp_file);
use Redis;
use Test::More;

my $many = 3000;
my $redis = Redis->new(tcp => 1);
$redis->command('ACL', 'SETUSER', 'sender', 'on', '>secret', '~good', '~bad:*', '~outbox:*', '+@all');
my $node = Outbox->create('main', conf => <<END);
outbox.redis_url = '@{[ $redis->tcp_url('sender:secret@') ]}'
outbox.max_attempts = 100000
restart_after_crash = on
outbox.retry_max_delay = '2s'
outbox.command_timeout = '10s'
END

# Message $n for each of the destinations of a kind, in one transaction, and
# then one for `good`.
sub enqueue
{
	my ($n, $destinations) = @_;
	$node->sql(<<END);
BEGIN;
SELECT count(outbox_enqueue(dest, '$n')) FROM ($destinations) d (dest);
SELECT outbox_enqueue('good', '$n');
COMMIT;
END
	return;
}

# How many of the first $last streams of a kind do not hold just these bodies.
sub wrong
{
	my ($kind, $last, $bodies) = @_;
	return $redis->command('EVAL', <<'END', 0, $kind, $last, $bodies);
local wrong = 0
for i = 1, tonumber(ARGV[2]) do
  local bodies = {}
  for _, entry in ipairs(redis.call('XRANGE', ARGV[1] .. ':' .. i, '-', '+')) do
    bodies[#bodies + 1] = entry[2][6]
  end
  if table.concat(bodies, ' ') ~= ARGV[3] then wrong = wrong + 1 end
end
return wrong
END
}

sub delete_keys { $redis->command('EVAL', q{for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('DEL', 'bad:' .. i) end}, 0, @_); return; }
sub waits { return $node->sql("SELECT count(*) FROM outbox.deferred WHERE state = 'waiting' AND $_[0]"); }

$redis->command('EVAL', q{for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'bad:' .. i, 'x') end}, 0, $many);
my $bad = "SELECT 'bad:' || i FROM generate_series(1, $many) i";
my $both = "SELECT kind || ':' || i FROM generate_series(1, $many) i, (VALUES ('bad'), ('forbidden')) k (kind) WHERE kind = 'bad' OR i <= 500";

# A message behind them all. Each refusal cost a commit once, and two batches sent again.
my $delay = seconds { enqueue(1, $both); wait_until { $redis->count('good') == 1 } };
is($redis->count('good'), 1, "a message behind $many that are refused arrives");
cmp_ok($delay, '<', 170, '... soon');
ok($node->poll_query_until('postgres', "SELECT deferred = $many + 500 FROM outbox.status"), '... they all wait');
is(waits('attempts = 0'), 0, '... for each was tried itself');
is(waits(q{dest LIKE 'bad%' AND last_error NOT LIKE 'WRONGTYPE%'}), 0, '... with what Redis said');
is(waits(q{dest LIKE 'forbidden%' AND last_error LIKE 'WRONGTYPE%'}), 0, '... of either kind');
is($node->status('pending'), $many + 500, '... and is counted once');

# While they are tried again, more comes for them and for others.
ok($node->poll_query_until('postgres', "SELECT min(attempts) > 1 FROM outbox.deferred WHERE state = 'waiting'"), 'all are tried again');
foreach my $n (2 .. 20)
{
	$delay = seconds
	{
		$node->sql("SELECT outbox_enqueue('good', '$n')");
		wait_until { $redis->count('good') == $n };
	};
	cmp_ok($delay, '<', 170, "message $n of another destination is not held up");
}
enqueue(21, $both);
eventually { $redis->count('good') == 21 } '... nor behind another lot';
$node->kill_dispatcher;
eventually { $node->answers } 'the server is back after a crash';
enqueue(22, $both);
eventually { $redis->count('good') == 22 } '... and other destinations go on';
eventually { waits('true') == 3 * ($many + 500) } 'all three lots wait';

# Some heal, then the rest.
delete_keys(1, 100);
enqueue(23, $bad);
eventually { wrong('bad', 100, '1 21 22 23') == 0 } 'some heal: their messages arrive, once, in order with one that was enqueued just then';
eventually { $redis->count('good') == 23 } '... others go on';
kill 'TERM', $node->dispatcher;
delete_keys(101, $many);
$redis->command('ACL', 'SETUSER', 'sender', '~forbidden:*');
ok($node->poll_query_until('postgres', 'SELECT pending = 0 FROM outbox.status'), 'all heal, and everything is sent');
is(wrong('bad', $many, '1 21 22 23'), 0, '... in order, once');
is(wrong('forbidden', 500, '1 21 22'), 0, '... likewise those that were forbidden');
is($redis->sequence('good'), join(' ', 1 .. 23), '... as the other destination all the time');

# An application may name very many, so the memory that each takes is small.
sub megabytes { return slurp_file('/proc/' . $node->dispatcher . '/status') =~ /^RssAnon:\s+(\d+) kB/m ? $1 / 1024 : undef; }
my $before = megabytes();
$node->sql(q{SELECT count(outbox_enqueue('refused:' || i, 'x')) FROM generate_series(1, 30000) i});
ok($node->poll_query_until('postgres', 'SELECT deferred = 30000 FROM outbox.status'), 'ten times as many refuse');
cmp_ok(megabytes() - $before, '<', 15, '... which takes less than half a kilobyte for each');

done_testing();
