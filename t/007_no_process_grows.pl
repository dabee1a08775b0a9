# A session needs no more memory after 10,000 transactions than after some, whether
# they succeed or fail; nor does the dispatcher after it was cut off from Redis many times.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $session = $node->session;

# Runs a thousand transactions, each in statements of its own: commits, rollbacks,
# savepoints, duplicates.
sub run_thousand
{
	my ($first) = @_;
	my $last = $first + 999;

	$session->query(<<END);
\\o /dev/null
SELECT s.statement
FROM generate_series($first, $last) n,
	LATERAL (VALUES
		(1, 'BEGIN'),
		(2, format('SELECT outbox_begin(%L, concurrency => %L)', n, CASE n % 2 WHEN 0 THEN 'optimistic' ELSE 'pessimistic' END)),
		(3, 'SAVEPOINT s'),
		(4, format('SELECT outbox_enqueue(%L, %L, %L)', 'd', n, '{"header": 1}')),
		(5, CASE n % 3 WHEN 0 THEN 'ROLLBACK TO s' END),
		(6, 'SELECT outbox_commit()'),
		(7, CASE n % 5 WHEN 0 THEN 'ROLLBACK' ELSE 'COMMIT' END),
		(8, CASE n % 7 WHEN 0 THEN 'SELECT outbox_begin(''1'')' END)) s (step, statement)
WHERE s.statement IS NOT NULL
ORDER BY n, s.step \\gexec
\\o
END
	return;
}

sub memory { return $session->query('SELECT sum(total_bytes) FROM pg_backend_memory_contexts'); }

run_thousand(1);
my $some = memory();
run_thousand($_ * 1000 + 1) foreach 1 .. 10;
my $many = memory();
cmp_ok($many - $some, '<', 32 * 1024, 'no growth of memory') or diag "from $some to $many";
eventually { $node->status('pending') == 0 } 'everything is sent';
is($redis->count('d'), grep({ $_ % 3 and $_ % 5 } 1 .. 11000), '... that committed');

# outbox_send() fails before it has connected: it waits for a lock in vain.
my $holder = $node->session;
$holder->query_safe('BEGIN; LOCK TABLE outbox.destination IN ACCESS EXCLUSIVE MODE');
sub fail_to_send
{
	return $session->query(<<'SQL');
SET lock_timeout = '1ms';
DO $$
BEGIN
	FOR i IN 1 .. 200 LOOP
		BEGIN
			PERFORM outbox_send('d', 'x');
		EXCEPTION WHEN lock_not_available THEN
			NULL;
		END;
	END LOOP;
END
$$;
SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
SQL
}
$some = fail_to_send();
$many = fail_to_send();
cmp_ok($many - $some, '<', 32 * 1024, 'nor by what cannot be sent') or diag "from $some to $many";
$holder->quit;

# What the dispatcher has allocated for as long as it lives.
sub dispatcher_memory
{
	my $log = $node->log_position;
	my $used;

	$node->sql('SELECT pg_log_backend_memory_contexts(' . $node->dispatcher . ')');
	wait_until { ($used) = $node->log_since($log) =~ /TopMemoryContext: .* (\d+) used/ };
	return $used;
}

sub descriptors { return scalar(() = glob '/proc/' . $node->dispatcher . '/fd/*'); }

# Cuts the dispatcher off so many times; each time a message arrives by the next connection.
my ($cut, $last) = (0, '0');
sub cut_off
{
	foreach (1 .. $_[0])
	{
		$cut += $redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
		$session->query_safe(q{SELECT outbox_enqueue('cut', 'x')});
		$last = $redis->command('XREAD', 'BLOCK', 170_000, 'STREAMS', 'cut', $last)->[0][1][-1][0];
	}
	return;
}

cut_off(50);
my $open = descriptors();
$some = dispatcher_memory();
$cut = 0;
cut_off(500);
$many = dispatcher_memory();
cmp_ok($cut, '>=', 500, 'the dispatcher loses 500 connections');
cmp_ok($many - $some, '<', 8 * 1024, '... and no memory') or diag "from $some to $many";
cmp_ok(descriptors(), '<', $open + 50, '... nor leaves them open');
is($redis->count('cut'), 550, '... nor a message');
$session->quit;

done_testing();
