# Filters tell that an id is new without a look into any table of records, also into
# the one that is written: it has its filter from before its first row, and whoever
# writes a row adds the key first. Where the filter cannot know all rows, as after a
# crash, there is none, and the table is looked into.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<"END");
$Compaction::small_segments
max_prepared_transactions = 5
END
sub prepare_each
{
	my ($database) = @_;

	prepare($node, $database);
	$node->sql(<<'END', $database);
CREATE PROCEDURE claim_each(first bigint, last bigint, mode text) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN first .. last LOOP
		PERFORM outbox_begin('m' || i, concurrency => mode);
		PERFORM outbox_commit();
		COMMIT;
	END LOOP;
END;
$$;
END
	return;
}

prepare_each();

my $index_scans = q{SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE relname ~ '^(record|history)_'};
my $next_id = 1_000_000;

# How many looks into tables of records it takes to process a new id.
sub looks_for_each
{
	my ($mode, $database) = @_;
	my $before = $node->sql($index_scans, $database);
	my $first = $next_id;

	$next_id += 100;
	$node->sql(counted("CALL claim_each($first, $next_id - 1, '$mode')"), $database);
	return ($node->sql($index_scans, $database) - $before) / 100;
}

sub is_looked_for_nowhere
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# One in 2000 or so finds its bits set by chance.
	cmp_ok(looks_for_each('optimistic'), '<', 0.1, $name);
	cmp_ok(looks_for_each('pessimistic'), '<', 0.1, '... and claimed at once likewise');
	return;
}

# Each id that was claimed is a duplicate.
sub are_known
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(unknown($node, 1, claimed($node)), 0, "$name: what was claimed is known");
	is(unknown($node, 1_000_000, $next_id - 1), 0, '... all of it');
	return;
}

sub segment_in { return $node->sql("SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = '$_[0]'"); }

eventually { looks_for_each('optimistic') < 0.1 } 'an extension that was just created gets a filter for the segment that is written';
is_looked_for_nowhere('a new id is looked for in no table');
fill($node, 1);
are_known('in the segment that is written, and in the one before');

# A segment that is sealed, for a transaction that has written to it is in progress, is as good.
my $writer = $node->session;
$writer->query_safe(q{BEGIN; SELECT outbox_begin('of the writer'), outbox_commit()});
fill($node, 2);
isnt(segment_in('sealed'), '', 'a segment cannot become quiet');
is_looked_for_nowhere('a new id is not looked for there');
are_known('in four segments');
like($node->sql_error(q{SET lock_timeout = '100ms'; SELECT outbox_begin('of the writer', concurrency => 'pessimistic')}),
	qr/lock timeout/, 'and an id in progress there is waited for');
$writer->query_safe('COMMIT');
$writer->quit;
is($node->sql(q{SELECT outbox_begin('of the writer')}), 'f', '... until it is known');

# What comes out of a dump, or from a server whose store this is, is written by others.
my $key = '00000000-0000-4000-8000-000000000001';
is($node->sql("SELECT outbox.store_contains('$key')"), 'f', 'a key is not there');
$node->sql(sprintf(q{INSERT INTO outbox.record_%s VALUES ('%s', '1', 'default', 'dumped')}, segment_in('current'), $key));
is($node->sql("SELECT outbox.store_contains('$key')"), 't', '... and is known when it was restored');
$key =~ s/1$/2/;
$node->sql("SELECT outbox.store_add('{$key}')");
is($node->sql("SELECT outbox.store_contains('$key')"), 't', '... or added to the store');

# All rows count after a crash, also of what is prepared; no filter knows which there are.
foreach my $prepared (0 .. 1)
{
	$node->sql(q{BEGIN; SELECT outbox_begin('prepared'), outbox_commit(); PREPARE TRANSACTION 'p'}) if $prepared;
	$node->kill9;
	$node->start_after_kill;
	$node->sql('SELECT outbox_cleanup()') foreach 1 .. 2;
	cmp_ok(looks_for_each('optimistic'), '>', 1.9, 'after a crash a new id is looked for in the segment that is written, at begin and at commit');
	cmp_ok(looks_for_each('pessimistic'), '>', 0.9, '... or once');
	are_known('after a crash');
}
like($node->sql_error(q{SET lock_timeout = '100ms'; SELECT outbox_begin('prepared', concurrency => 'pessimistic')}),
	qr/lock timeout/, 'an id that was prepared before is waited for');
fill($node, 1);
like($node->sql_error(q{SET lock_timeout = '100ms'; SELECT outbox_begin('prepared', concurrency => 'pessimistic')}),
	qr/lock timeout/, '... also when the next segment is written');
$node->sql(q{COMMIT PREPARED 'p'});
is($node->sql(q{SELECT outbox_begin('prepared')}), 'f', '... until it is known');
eventually { is_at_rest($node) && looks_for_each('optimistic') < 0.1 } 'the next segment has a filter again';
is_looked_for_nowhere('a new id is looked for nowhere');

# More keys than a filter was made for: it denies none of them.
fill($node, 1);
$node->set('outbox.record_segment_size' => '4MB');
$node->sql('CALL claim_each(2000000, 2019999, $$pessimistic$$)');
is(unknown($node, 2_000_000, 2_019_999), 0, 'what is in a segment that has grown too large for its filter is known');
is(unknown($node, 3_000_000, 3_000_999), 1000, '... and what is not is new');

# When no rows come any more, it gets a filter for all that it has. It is not compacted yet, because it is not published.
my $grown = segment_in('current');
$redis->stop;
$node->sql(q{SELECT outbox_enqueue('somewhere', 'x')});
$node->sql('CALL claim_each(2020000, 2020000, $$pessimistic$$)');
$node->set('outbox.record_segment_size' => '64kB');
eventually { $node->sql("SELECT state FROM outbox.ring WHERE ring = 'record' AND segment = $grown") eq 'quiet' } 'the next segment is written';
eventually { looks_for_each('optimistic') < 0.1 } 'a segment that has grown too large for its filter gets a larger one';
$redis->start;
are_known('in the end');

# A segment to which somebody may be about to write gets no filter. The dispatcher comes only when that is so.
$node->sql('CREATE DATABASE locked');
$writer = $node->session('locked');
$node->sql('ALTER DATABASE locked ALLOW_CONNECTIONS false');
$writer->query_safe('CREATE EXTENSION outbox; BEGIN; LOCK TABLE outbox.record_0 IN ROW EXCLUSIVE MODE');
$node->sql('ALTER DATABASE locked ALLOW_CONNECTIONS true');
$node->sql('SELECT outbox_cleanup()', 'locked') foreach 1 .. 2;

# How many looks it takes to begin with a new id, if nothing is written.
sub looks_to_begin
{
	my $before = $node->sql($index_scans, 'locked');
	$node->sql(counted(<<'END'), 'locked');
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			PERFORM outbox_begin('n' || i);
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END;
$$
END
	return ($node->sql($index_scans, 'locked') - $before) / 100;
}
cmp_ok(looks_to_begin(), '>', 0.9, 'a segment that somebody holds a lock on is looked into');
$writer->query_safe('COMMIT');
$writer->quit;
eventually { looks_to_begin() < 0.1 } '... until the lock is gone and it gets its filter';

done_testing();
