# A session needs no more memory after 10,000 transactions than after some, whether
# they succeed or fail.

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
$session->quit;

done_testing();
