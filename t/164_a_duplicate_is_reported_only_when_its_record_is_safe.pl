# outbox_begin() returns false, after which the message is acknowledged, only when the
# record would survive a crash, or the loss of the primary: also if the transaction that
# wrote it did not wait for disk or standby.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Test::More;

# Nothing but the extension flushes the WAL.
my $node = Outbox->create('main', init => { allows_streaming => 1 }, conf => <<'END');
outbox.dispatch = off
wal_writer_delay = '10s'
wal_writer_flush_after = '1GB'
checkpoint_timeout = '1h'
autovacuum = off
END
$node->sql(<<'END');
CREATE TABLE own (message_id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON own (dispatched_at) WHERE dispatched;
SELECT outbox_create_endpoint('own', record_table => 'own');
CREATE TABLE business (msgid text);
END

sub handle
{
	my ($msgid, $endpoint, $wait) = @_;
	return <<"END";
SET synchronous_commit = $wait;
BEGIN;
SELECT outbox_begin('$msgid', '$endpoint');
INSERT INTO business VALUES ('$msgid');
SELECT outbox_commit();
COMMIT;
END
}

sub begin
{
	my ($msgid, $endpoint, $concurrency, $wait) = @_;
	return "SET synchronous_commit = $wait; SELECT outbox_begin('$msgid', '$endpoint', '$concurrency')";
}

sub survives_a_crash
{
	my ($name, @msgids) = @_;

	$node->stop('immediate');
	$node->start;
	is($node->sql("SELECT count(*) FROM business WHERE msgid IN ('" . join("', '", @msgids) . "')"), scalar(@msgids), $name);
	return;
}

#
# A crash.
#
foreach my $endpoint ('default', 'own')
{
	foreach my $concurrency ('optimistic', 'pessimistic')
	{
		my $msgid = "$endpoint $concurrency";

		$node->sql('CHECKPOINT');
		$node->sql(handle($msgid, $endpoint, 'off'));
		is($node->sql(begin($msgid, $endpoint, $concurrency, 'off')), 'f', "$msgid: a duplicate");
		survives_a_crash('... whose record is there after a crash', $msgid);
	}
}

# A frozen row does not tell its transaction, so all WAL is flushed; also when it ends where
# a page ends (24 is the size of the header of the next one).
$node->sql('VACUUM (FREEZE) own');
my $to_end_of_page = <<'SQL';
DO $$
DECLARE
	here integer;
BEGIN
	FOR i IN 1 .. 3 LOOP
		here := (pg_current_wal_insert_lsn() - '0/0') % 8192;
		EXIT WHEN here = 24;
		PERFORM pg_logical_emit_message(false, '', repeat('x', CASE WHEN here > 7000 THEN 1500 ELSE 8192 - here - 54 END));
	END LOOP;
END
$$;
SQL
my $answer = '';
foreach (1 .. 20)
{
	$answer = $node->sql($to_end_of_page . q{SELECT outbox_begin('own optimistic', 'own'), (pg_current_wal_insert_lsn() - '0/0') % 8192});
	last if $answer =~ /24$/;
}
is($answer, 'f|24', 'a duplicate with a frozen record, at the end of a page of the WAL');

# A session waits for the first transaction, which commits without waiting.
my $first = $node->session;
my $second = $node->session;
$first->query_safe("SET synchronous_commit = off; BEGIN; SELECT outbox_begin('waited', concurrency => 'pessimistic'); INSERT INTO business VALUES ('waited'); SELECT outbox_commit()");
$second->query_until(qr/asked/, "\\echo asked\nSELECT 'answer ' || outbox_begin('waited', concurrency => 'pessimistic');\n");
wait_until { $node->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) == 1 };
$first->query_safe('COMMIT');
like($second->query('SELECT 1'), qr/answer false/, 'a duplicate that has waited for the first one');
survives_a_crash('... whose record is there after a crash', 'waited');
eval { $_->quit } foreach $first, $second;

# Within one transaction nothing is waited for.
is($node->sql("BEGIN; SELECT outbox_begin('own id'); SELECT outbox_commit(); SELECT outbox_begin('own id'); ROLLBACK"), "t\n0\nf",
	'a duplicate of the same transaction');

#
# A synchronous standby.
#
my $standby = $node->start_standby;
$node->set(synchronous_standby_names => 'standby');
$node->sql(handle('with the standby', 'default', 'on'));
is($node->sql(begin('with the standby', 'default', 'optimistic', 'on')), 'f', 'a duplicate whose record the standby has');
$standby->stop;

# A transaction that does not wait for the standby, and one whose wait is cancelled.
$node->sql(handle('local', 'default', 'local'));
my $cancelled = $node->session;
my $pid = $cancelled->query_safe('SELECT pg_backend_pid()');
$cancelled->query_until(qr/asked/, "\\echo asked\n" . handle('cancelled', 'own', 'on'));
wait_until { $node->sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'SyncRep' };
$node->sql("SELECT pg_cancel_backend($pid)");
$cancelled->query('SELECT 1');
$cancelled->quit;
is($node->sql('SELECT count(*) FROM business WHERE msgid IN (\'local\', \'cancelled\')'), 2, 'two records that the standby lacks are committed');

my %endpoint = (local => 'default', cancelled => 'own');
foreach my $msgid (sort keys %endpoint)
{
	my $begin = begin($msgid, $endpoint{$msgid}, 'optimistic', 'on');

	like($node->sql_error("SET statement_timeout = '500ms'; $begin"), qr/^57014/, "$msgid: it is waited for, with an end");
	is($node->sql(begin($msgid, $endpoint{$msgid}, 'optimistic', 'local')), 'f', '... by all who wait for the standby themselves');
}
my $session = $node->session;
$session->query_until(qr/asked/, "\\echo asked\n" . begin('local', 'default', 'optimistic', 'on') . ";\n");
$pid = undef;
eventually { $pid = $node->sql(q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%outbox_begin%' AND pid <> pg_backend_pid()}) } 'a duplicate waits for the standby';
$standby->start;
like($session->query('SELECT 1'), qr/^f$/m, '... until it is back');
$session->quit;
$node->stop('immediate');
$standby->promote;
is($standby->sql(q{SELECT count(*) FROM business WHERE msgid IN ('with the standby', 'local', 'cancelled')}), 3, '... which has all when it takes over');
is($standby->sql(begin('cancelled', 'own', 'optimistic', 'local')), 'f', '... and knows the duplicates');

done_testing();
