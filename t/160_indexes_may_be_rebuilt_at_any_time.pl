# REINDEX CONCURRENTLY and CREATE INDEX CONCURRENTLY on the tables of the outbox, which
# administrators run from cron: each row is added to each index, and reading goes on with
# the new index.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "$Compaction::small_segments\noutbox.record_segment_size = '1MB'");
prepare($node);
$node->sql('CREATE TABLE ledger (body text)');

sub is_rebuilt
{
	return $node->sql(q{SELECT count(*) FROM pg_index WHERE NOT indisvalid}) eq '0';
}

# Starts these commands, each in a session of its own, while a snapshot is held that they
# have to wait for; returns the code that lets them finish.
sub start_building
{
	my (@commands) = @_;
	my $snapshot = $node->session;
	my @sessions;

	$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	foreach my $command (@commands)
	{
		my $session = $node->session;
		$session->query_until(qr/begun/, "\\echo begun\n$command;\n");
		push @sessions, $session;
	}
	eventually
	{
		$node->sql(q{SELECT count(*) FROM pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots'}) eq @commands
	}
	'indexes are being built, and wait for a snapshot';
	return sub {
		$snapshot->query_safe('COMMIT');
		$_->query_safe('SELECT 1') foreach @sessions;
		$_->quit foreach $snapshot, @sessions;
	};
}

#
# What is written while an index is ready and not yet valid.
#
$node->handle('before');
my $finish = start_building(
	map { "REINDEX INDEX CONCURRENTLY outbox.$_" } 'log_0_tx_idx', 'record_0_pkey', 'window_0_pkey', 'history_0_pkey', 'deferred_pkey');
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->handle("m$_") foreach 1 .. 20;
$finish->();
ok(is_rebuilt(), 'the indexes are valid');
ok(!is_new($node, 'm7'), 'what was claimed meanwhile is known');
is($node->sql("SELECT pending FROM outbox.status"), 20, '... what was enqueued is pending');
is($node->sql("SELECT outbox_wait('m7', timeout => '0')"), 'f', '... and waited for');
$node->set('outbox.dispatch' => 'on');
ok($node->wait_until_sent, 'all is sent');
is_exactly_once([ $redis->bodies('d') ], [ 'before', map { "m$_" } 1 .. 20 ], '... once');

#
# The same while windows are written and records are compacted.
#
$finish = start_building('REINDEX TABLE CONCURRENTLY outbox.window_0', map { "REINDEX TABLE CONCURRENTLY outbox.history_$_" } 0 .. 2);
$node->handle("n$_") foreach 1 .. 20;
ok($node->wait_until_sent, 'windows are written while their index is being rebuilt');
$node->set('outbox.record_segment_size' => '64kB');
my $last = fill($node, 7);
eventually { compacted_segments($node) > 0 } '... and records are compacted';
my ($compacted) = compacted_segments($node);
cmp_ok($compacted, '<=', 2, '... into a table that is being reindexed');
$finish->();
ok(is_rebuilt(), 'the indexes are valid');
is(unknown($node, 1, $last), 0, 'no id is forgotten');
$node->restart;
$node->handle('after');
ok($node->wait_until_sent, 'the windows are found after a restart');
is_exactly_once([ $redis->bodies('d') ],
	[ 'before', 'after', map { ("m$_", "n$_") } 1 .. 20 ], '... and nothing is sent again');

#
# An administrator's own indexes, of several kinds.
#
$node->sql(q{CREATE FUNCTION shout(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'});
my ($log, $record) = map { $node->sql("SELECT 'outbox.' || ring || '_' || segment FROM outbox.ring WHERE ring = '$_' AND state = 'current'") } 'log', 'record';
$finish = start_building(
	"CREATE INDEX CONCURRENTLY mine ON $log (dest, public.shout(message_uuid::text)) WHERE dest <> 'none'",
	"CREATE INDEX CONCURRENTLY his ON $record (msgid)",
	"CREATE INDEX CONCURRENTLY hers ON outbox.window_0 (number DESC)");
$node->handle("o$_") foreach 1 .. 20;
$finish->();
$node->handle('o21');
ok(!is_new($node, 'o9'), 'ids are known beside indexes of an administrator');
is($node->sql("SET enable_seqscan = off; SELECT count(*) FROM $log WHERE dest = 'd' AND public.shout(message_uuid::text) > '' AND dest <> 'none' AND cause LIKE 'o%'"),
	21, 'his index has what was enqueued while it was built, and later');
is($node->sql("SET enable_seqscan = off; SELECT count(*) FROM $record WHERE msgid LIKE 'o%' AND msgid >= 'o'"), 21, '... and what was claimed');
ok($node->wait_until_sent, 'all is sent');
is($redis->count('d'), 63, '... once');

#
# A session remembers an index that is gone: each one alone, for a change of one table may
# invalidate all that is remembered. Once between two transactions, and once within one,
# by calls that lock nothing before they look.
#
my $session = $node->session;
my @looks = ([ q{SELECT outbox_begin('o1')}, qr/^f$/ ], [ q{SELECT outbox_wait('o1')}, qr/^t$/ ], [ q{SELECT pending FROM outbox.status}, qr/^\d+$/ ]);
foreach my $table ($log, $record, 'outbox.window_0', 'outbox.deferred', 'outbox.history_0', 'outbox.history_1')
{
	foreach my $begin ('', 'BEGIN')
	{
		$session->query_safe("$begin; " . join '; ', map { $_->[0] } @looks);
		$node->sql("REINDEX TABLE CONCURRENTLY $table");
		like($session->query($_->[0]), $_->[1], "$_->[0] goes on that has used the old index of $table" . ($begin ? ', within a transaction' : ''))
		  foreach @looks;
		is($session->{stderr}, '', '... without an error');
		$session->query_safe('ROLLBACK') if $begin;
	}
}
$session->quit;

#
# An index that was dropped is an error, and nothing is lost.
#
$node->sql("DROP INDEX $log\_tx_idx");
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x')}), qr/^55000: table "\Q$log\E" has no usable index on column "tx"/,
	'an index that was dropped is an error');
$node->sql("CREATE INDEX ON $log (tx)");
$node->sql(q{SELECT outbox_enqueue('d', 'mended')});
eventually { $redis->count('d') == 64 } '... until there is another one';

#
# An index with other columns beside its key, alone on its table.
#
my %covering = ($log => 'tx) INCLUDE (message_id, id)', $record => 'key) INCLUDE (msgid)', 'outbox.forgotten' => 'key) INCLUDE (forgotten_at)');
foreach my $table (sort keys %covering)
{
	my $constraint = ($table =~ s/.*\.//r) . '_pkey';
	$node->sql("ALTER TABLE $table DROP CONSTRAINT IF EXISTS $constraint");
	$node->sql("DROP INDEX $_") foreach split /\n/, $node->sql("SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '$table'::regclass");
	$node->sql("CREATE INDEX ON $table ($covering{$table}");
}
$node->sql(q{BEGIN; SELECT outbox_begin('covered'), outbox_enqueue('d', 'covered', message_id => repeat('x', 100)), outbox_commit(); COMMIT});
$node->sql(q{SELECT outbox_forget('covered')});
$node->sql(q{BEGIN; SELECT outbox_begin('covered'), outbox_enqueue('d', 'again', message_id => repeat('y', 100)), outbox_commit(); COMMIT});
eventually { $redis->count('d') == 66 } 'an index with other columns beside its key is as good, also alone';
ok(!is_new($node, 'covered'), '... for records, too');
is($node->sql("SET enable_seqscan = off; SELECT message_id, id > 0 FROM $log WHERE tx = (SELECT max(tx) FROM $log WHERE cause = 'covered') AND message_id LIKE 'y%'"),
	('y' x 100) . '|t', '... and has these columns');

#
# What else an administrator may do to a table.
#
$node->sql("ALTER TABLE $log ADD COLUMN mine int, ADD COLUMN his text NOT NULL DEFAULT 'x'; ALTER TABLE outbox.deferred ADD COLUMN hers int");
$redis->refuse('refuses');
$node->sql(q{BEGIN; SELECT outbox_enqueue('d', 'with more columns'); SELECT outbox_enqueue('refuses', 'x'); COMMIT});
eventually { $redis->count('d') == 67 && $node->status('deferred') == 1 } 'columns that were added do no harm';
$node->command_fails_like([ 'pg_dump', '-f', '/dev/null', $node->connstr('postgres') ], qr/each UNION query must have the same number of columns/, '... but that a dump fails');
is($node->sql("SELECT count(*) FROM $log WHERE his = 'x' AND mine IS NULL AND convert_from(body, 'UTF8') = 'with more columns'"), 1, '... and have their default');
$node->sql("ALTER TABLE $log DROP COLUMN mine, DROP COLUMN his; ALTER TABLE outbox.deferred DROP COLUMN hers");
$node->command_ok([ 'pg_dump', '-f', '/dev/null', $node->connstr('postgres') ], '... until they are dropped');
$redis->accept('refuses');
eventually { $redis->count('refuses') == 1 } 'the message that was refused is sent';
$node->sql(q{ALTER TABLE outbox.deferred ADD COLUMN hers int, ADD COLUMN who text NOT NULL DEFAULT current_user, ADD COLUMN his text NOT NULL DEFAULT 'old', ADD COLUMN tag uuid DEFAULT gen_random_uuid() CHECK (tag IS NOT NULL); ALTER TABLE outbox.deferred ALTER COLUMN his SET DEFAULT 'x'; VACUUM FULL outbox.deferred});
$redis->refuse('refuses too');
$node->sql(q{SELECT outbox_enqueue('refuses too', 'x')});
eventually { $node->status('deferred') == 1 } 'one is refused while outbox.deferred has columns that must not be NULL';
is($node->sql('SELECT his, who = tableowner AND hers IS NULL AND tag IS NOT NULL FROM outbox.deferred, pg_tables WHERE tablename = $$deferred$$ AND dest = $$refuses too$$'), 'x|t', '... it has their defaults');
$node->sql(q{SELECT outbox_enqueue('d', 'meanwhile')});
eventually { $redis->count('d') == 68 } '... and stops no others';
$redis->accept('refuses too');
eventually { $redis->count('refuses too') == 1 } '... and is sent in the end';
$node->sql('ALTER TABLE outbox.deferred DROP COLUMN hers, DROP COLUMN who, DROP COLUMN his, DROP COLUMN tag');
$node->sql("ALTER TABLE $log SET UNLOGGED");
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x')}), qr/^55000: "\Q$log\E" is unlogged/, 'an unlogged table is an error');
$node->sql("ALTER TABLE $log SET LOGGED");
$node->sql('ALTER SEQUENCE outbox.log_id_seq SET UNLOGGED');
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x') FROM generate_series(1, 100)}), qr/^55000: "outbox\.log_id_seq" is unlogged/, '... and so is an unlogged sequence');
$node->sql('ALTER SEQUENCE outbox.log_id_seq SET LOGGED');

# A crash would lose what is deferred, without a word.
$node->sql('ALTER TABLE outbox.deferred SET UNLOGGED');
$node->sql(q{SELECT outbox_enqueue('later', 'x', deliver_at => now() + interval '2 s')});
eventually { $node->status('problem') =~ /"outbox\.deferred" is unlogged/ } '... and a table of which no row is written by itself';
$node->sql('ALTER TABLE outbox.deferred SET LOGGED');
eventually { $redis->count('later') == 1 } '... until it is logged again';

#
# REINDEX in a loop, under load.
#
$node->sql('ALTER TABLE ledger ADD PRIMARY KEY (body)');
my $load = $node->start_load(clients => 4, scripts => [ <<'END' ]);
\set id random(1, 1000000000)
BEGIN;
INSERT INTO ledger VALUES (:client_id || ' ' || :id) ON CONFLICT DO NOTHING RETURNING outbox_begin(body), outbox_enqueue('load', body), outbox_commit();
COMMIT;
END
my @indexes = split /\n/, $node->sql(<<'END');
SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
	JOIN outbox.ring r ON t.relname = ANY (ARRAY[r.ring || '_' || r.segment, replace(r.ring, 'log', 'window') || '_' || r.segment])
WHERE n.nspname = 'outbox' AND r.state = 'current'
END
foreach my $round (1 .. 3)
{
	$node->sql("REINDEX INDEX CONCURRENTLY $_") foreach @indexes;
}
$load->stop;
ok($node->wait_until_sent, 'all is sent that was committed while indexes were rebuilt again and again');
my @ledger = split /\n/, $node->sql('SELECT body FROM ledger');
is_exactly_once([ $redis->bodies('load') ], \@ledger, '... once');
is($node->sql('SELECT count(*) FROM ledger WHERE outbox_begin(body)'), 0, '... and nothing is claimable again');

done_testing();
