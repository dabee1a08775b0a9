# A FETCH that fails within a savepoint releases what its cursor has locked, but does not
# roll back what earlier FETCHes have written. So tables must stay locked until the
# transaction ends: the segments that were written to are not emptied before that.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retention = '3s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '20ms'
END
$node->sql(<<'END');
CREATE FUNCTION fail_at(n integer) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF n = 3 THEN
		RAISE EXCEPTION 'three';
	END IF;
	RETURN n;
END;
$$;
CREATE TABLE own (message_id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON own (dispatched_at) WHERE dispatched;
SELECT outbox_create_endpoint('own', record_table => 'own');
END

my $session = $node->session;
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe(q{SET outbox.retention = '1h'});    # a transaction that claims must be younger, however long it was interrupted

# Fetches two rows of a cursor, and a third one that fails within a savepoint.
sub fetch
{
	my ($name, $columns) = @_;
	$session->query_safe("DECLARE $name CURSOR FOR SELECT fail_at(n), $columns FROM generate_series(1, 10) n; FETCH 2 FROM $name; SAVEPOINT s");
	$session->query("FETCH 1 FROM $name");
	like($session->{stderr}, qr/ERROR:  three/, "$name: a FETCH fails");
	$session->{stderr} = '';
	$session->query_safe('ROLLBACK TO s');
	return;
}

sub locked
{
	return $node->sql(<<END);
SELECT string_agg(DISTINCT regexp_replace(relation::regclass::text, '[0-9]+\$', 'N') || ' ' || mode, ', ')
FROM pg_locks WHERE pid = $pid AND locktype = 'relation'
	AND relation::regclass::text ~ '^(outbox\.(instance|log_\\d+|record_\\d+)|own)\$' AND database = (SELECT oid FROM pg_database WHERE datname = 'postgres')
END
}

# Counts how often another segment has become the current one, for each ring.
my (%current, %turns);
sub turn
{
	$node->sql("SET outbox.retention = '1h'; BEGIN; SELECT outbox_begin(clock_timestamp()::text); SELECT outbox_enqueue('others', 'x'); SELECT outbox_commit(); COMMIT");
	foreach (split /\n/, $node->sql(q{SELECT ring, segment FROM outbox.ring WHERE state = 'current'}))
	{
		my ($ring, $segment) = split /\|/;
		$turns{$ring}++ if ($current{$ring} // $segment) != $segment;
		$current{$ring} = $segment;
	}
	return;
}

$session->query_safe('BEGIN');
fetch('messages', q{outbox_enqueue('d', n::text)});
like(locked(), qr/outbox.instance AccessShareLock, outbox.log_N RowExclusiveLock/, '... and the log stays locked');
$session->query_safe('COMMIT');

$session->query_safe('BEGIN');
fetch('records', q{outbox_begin('r' || n) AND outbox_commit() = 0});
like(locked(), qr/outbox.instance AccessShareLock.*outbox.record_N RowExclusiveLock/, '... and the records stay locked');
$session->query_safe('COMMIT');

$session->query_safe('BEGIN');
fetch('own', q{outbox_begin('r' || n, 'own') AND outbox_commit() = 0});
like(locked(), qr/outbox.log_N RowExclusiveLock.*own RowExclusiveLock/, '... and a table of the user stays locked');
$session->query_safe('COMMIT');

# The rings rotate meanwhile.
$session->query_safe('BEGIN');
fetch('both_rings', q{outbox_begin('s' || n), outbox_enqueue('slow', n::text), outbox_commit()});
eventually { turn(); ($turns{log} // 0) >= 6 && ($turns{record} // 0) >= 8 } 'the rings rotate';
$node->set('outbox.retention' => '1h');
$session->query_safe('COMMIT');
$session->quit;
ok($node->wait_until_sent, 'all is sent');
is($redis->sequence('slow'), '1 2', '... also what was enqueued before that');
is($node->sql(q{SELECT outbox_begin('s1'), outbox_begin('s2')}), 'f|f', '... and what was claimed is known');
is($redis->sequence('d'), '1 2', '... and nothing twice');

done_testing();
