# Counted, not timed: what the dispatcher does for a known load. A window is one commit, a
# batch is one run of the script, and what was read once is not looked for again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;
use Time::HiRes qw(time);

# Nothing is done because time has passed, but for noting the position and renewing the lease.
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.poll_interval = '1h'
outbox.cleanup_interval = '1h'
outbox.record_segment_size = 512kB
checkpoint_timeout = '1h'
autovacuum = off
END
$node->sql('CREATE EXTENSION pg_walinspect');

# Runs a load, waits until all is sent, and returns what the server did meanwhile, by name.
sub counted
{
	my ($load) = @_;
	my $began = time;
	my ($before, $start) = (counts(), $node->sql('SELECT pg_current_wal_insert_lsn()'));
	$load->();
	wait_until { $node->status('pending = deferred') eq 't' };

	# The dispatcher reports its statistics with the transaction that notes the position.
	my %done;
	my $done = wait_until
	{
		my $rests = is_at_rest();
		my $after = counts();
		%done = map { $_ => $after->{$_} - $before->{$_} } keys %$after;
		$rests && $done{scans} >= $done{windows};
	};
	ok($done, 'all is sent, and the position is noted');

	# When no batch was sent for three seconds the script is run to renew the lease.
	$done{renewals} = 1 + int((time - $began) / 3);
	$done{commits} = $node->sql(<<"END");
SELECT count(*) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'
END
	note join ', ', map { "$_ $done{$_}" } sort keys %done;
	return \%done;
}

sub is_at_rest { return $node->sql(newest('published = number')) eq 't'; }

sub newest { my ($what) = @_; return "SELECT $what FROM outbox.window_0 ORDER BY number DESC LIMIT 1"; }

sub counts
{
	my ($switches) = slurp_file('/proc/' . $node->dispatcher . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	my ($runs) = $redis->command('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/;

	return {
		windows => $node->sql(newest('number')), script_runs => $runs, switches => $switches,
		scans => scans_of('log_0_tx_idx'), looks => scans_of('deferred_pkey') };
}

sub scans_of
{
	my ($index) = @_;
	return $node->sql("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '$index'");
}

$node->sql(q{SELECT outbox_enqueue('d', 'warm')});
$node->wait_until_sent;
eventually { is_at_rest() } 'the dispatcher is at work';

# One after the other.
my $session = $node->session;
my $sent = 0;
my $one = counted(sub {
	foreach (1 .. 50)
	{
		$session->query_safe(q{SELECT outbox_enqueue('one', 'x')});
		$sent++;
		wait_until { $redis->count('one') == $sent };
	}
});
# A machine that is slow may have the position noted between two messages.
my $closing = $one->{windows} - 50;
is($one->{commits}, 50 + $one->{windows}, 'a window is one commit');
cmp_ok($one->{script_runs}, '<=', 50 + 4 + $one->{renewals} + 3 * $closing, '... and one run of the script');
cmp_ok($one->{scans}, '<=', 1.5 * $one->{windows} + 10, '... and one look into the log');
cmp_ok($one->{switches}, '<=', 5 * $one->{windows} + 50, '... and some waits');

# All at once: 20 transactions with 250 messages each, for ten streams.
$node->sql('SELECT outbox_pause()');
eventually { $node->status('dispatcher_state') eq 'paused' } 'all is paused';
my $many = counted(sub {
	$session->query_safe(q{SELECT count(outbox_enqueue('many-' || n % 10, 'x')) FROM generate_series(1, 250) n}) foreach 1 .. 20;
	$node->sql('SELECT outbox_resume()');
});
cmp_ok($many->{windows}, '<=', 4, 'what waits is one window');
is($many->{commits}, 20 + 1 + $many->{windows}, '... which is one commit');
cmp_ok($many->{script_runs}, '<=', 5000 / 500 + $many->{renewals} + $many->{windows}, '... and a run of the script for each batch');
cmp_ok($many->{scans}, '<=', 3 * $many->{windows} + 5, '... and some scans of the index of the log');

# To a destination that takes nothing: what is deferred is written by a commit of its own.
$node->sql(q{SELECT outbox_pause('held')});
my $deferred = 0;
my $held = counted(sub {
	foreach (1 .. 20)
	{
		$session->query_safe(q{SELECT outbox_enqueue('held', 'x')});
		$deferred++;
		wait_until { $node->status('deferred') == $deferred };
	}
});
cmp_ok($held->{commits}, '<=', 20 + 20 + $held->{windows}, 'a window of which a message is deferred is two commits');
$node->sql(q{SELECT outbox_resume('held')});
$node->wait_until_sent;

# Once more, to a Redis that has lost everything. Some messages were deferred, and came back as
# other rows: most of the others are sent without being looked for among these.
my $again = counted(sub {
	$redis->command('FLUSHALL');
	$session->query_safe(q{SELECT outbox_enqueue('one', 'the last')});
});
is(join(' ', map { $redis->count($_) } qw(one held), map { "many-$_" } 0 .. 9), '51 20' . ' 500' x 10, 'what Redis has lost is sent again, once');
cmp_ok($again->{looks}, '<=', 100, '... and few messages are looked for among those that were deferred');

# Keys are hashed, so that after a checkpoint nearly each record changes another page of the
# index, which would be written to the WAL as a whole.
sub current { return $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'}); }

sub claim
{
	my ($first, $last) = @_;
	return $session->query_safe("SELECT sum(outbox_begin('m' || n)::int + outbox_commit()) FROM generate_series($first, $last) n");
}
$node->sql('CHECKPOINT');
claim(1, 100);
$session->query_safe(q{SELECT outbox_enqueue('one', 'a window')});
$node->wait_until_sent;
is(current(), 0, 'a small table of records is written to after a checkpoint as well');
claim(101, 1500);
$node->sql('CHECKPOINT');
$session->query_safe(q{SELECT outbox_enqueue('one', 'another window')});
eventually { current() == 1 } 'a larger one is not: another table is current at once';
my $start = $node->sql('SELECT pg_current_wal_insert_lsn()');
claim(1501, 2500);
cmp_ok($node->sql("SELECT sum(fpi_length) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())"), '<', 50_000, '... so that few pages are written as a whole');
$session->quit;

done_testing();
