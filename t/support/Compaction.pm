# What the tests of compaction need: claiming ids until segments are full, and asking which
# ids are remembered.

package Compaction;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Outbox;

our @EXPORT = qw(claimed compact counted fill filling hold_merge is_at_rest is_new live_keys compacted_segments prepare release_merge sizes unknown);

# Segments are full at once, and segments of records are as many as they can be.
our $small_segments = <<'END';
outbox.record_segment_size = '64kB'
outbox.cleanup_interval = '100ms'
outbox.retention = '1h'
END

# Creates what the other functions need. Ids are m1, m2, ...; padding makes them longer.
sub prepare
{
	my ($node, $database, $padding) = @_;
	my $id = "'m' || i" . ($padding ? " || repeat('x', $padding)" : '');

	$node->sql(<<END, $database);
CREATE TABLE claimed (upto bigint);

-- How many of these ids are not remembered. Claims them.
CREATE FUNCTION claim(first bigint, last bigint) RETURNS bigint LANGUAGE plpgsql AS \$\$
DECLARE
	claimed bigint := 0;
BEGIN
	FOR i IN first .. last LOOP
		IF outbox_begin($id) THEN
			PERFORM outbox_commit();
			claimed := claimed + 1;
		END IF;
	END LOOP;
	RETURN claimed;
END;
\$\$;

-- Claims new ids, a hundred in a transaction, until so many segments are full; they
-- grow larger where segments are scarce.
CREATE PROCEDURE fill(segments integer) LANGUAGE plpgsql AS \$\$
DECLARE
	current integer;
	last bigint := (SELECT coalesce(max(upto), 0) FROM claimed);
	full_size bigint := pg_size_bytes(current_setting('outbox.record_segment_size'));
BEGIN
	FOR s IN 1 .. segments LOOP
		SELECT segment INTO current FROM outbox.ring WHERE ring = 'record' AND state = 'current';
		WHILE EXISTS (SELECT FROM outbox.ring WHERE ring = 'record' AND segment = current AND state = 'current') LOOP
			PERFORM claim(last + 1, last + 100);
			last := last + 100;
			INSERT INTO claimed VALUES (last);
			COMMIT;
			IF pg_relation_size('outbox.record_' || current) >= full_size THEN
				PERFORM outbox_cleanup();
				COMMIT;
			END IF;
		END LOOP;
	END LOOP;
END;
\$\$;
END
	return;
}

# SQL at whose end the statistics count what it has done: by itself, a session sees to
# that when it ends, which may be some time after its client.
sub counted { return "$_[0]; DO 'BEGIN PERFORM pg_stat_force_next_flush(); END'"; }

# Fills segments with new ids and returns the last of them.
sub fill
{
	my ($node, $segments, $database) = @_;
	$node->sql(counted("CALL fill($segments)"), $database);
	return claimed($node, $database);
}

# Fills as many segments as are merged, and waits until they are.
sub compact
{
	my ($node) = @_;
	my $merged = q{SELECT count(*) < 6 FROM outbox.ring WHERE ring = 'record' AND state = 'quiet'};

	fill($node, 6);
	wait_until { $node->sql($merged) eq 't' && is_at_rest($node) } or die 'compaction does not end';
	return;
}

# The table that a merge is filling; empty if there is none.
sub filling
{
	my ($node) = @_;
	return $node->sql(q{SELECT 'outbox.history_' || segment FROM outbox.ring WHERE ring = 'history' AND state = 'filling'});
}

# Fills so many segments, so that a merge begins, and keeps others from writing to what it
# fills as soon as that has so many pages; none: before it has any. Returns the table and the
# sessions that do, to be ended in that order. A busy machine may notice the pages late: the
# merge may have got further by then, or ended.
sub hold_merge
{
	my ($node, $segments, $pages) = @_;
	my ($keeper, $holder) = map { $node->session } 1 .. 2;
	my $tables = join ', ', map { "outbox.history_$_" } 0 .. 23;

	$keeper->query_safe("SELECT pg_advisory_lock(1); BEGIN; LOCK TABLE $tables IN SHARE MODE");
	fill($node, $segments);
	wait_until { filling($node) } or die 'no merge begins';
	my $target = filling($node);
	return ($target, $keeper, $holder) if $pages == 0;

	$holder->query_until(qr/locking/, <<"END");
\\echo locking
DO 'BEGIN
	LOOP
		LOCK TABLE $target IN SHARE MODE;
		EXIT WHEN pg_relation_size(''$target'') >= $pages * 8192;
		COMMIT;
		PERFORM pg_sleep(0.001);
	END LOOP;
	PERFORM pg_advisory_lock(1);
END';
END
	$keeper->query_safe('COMMIT');
	wait_until { $node->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 1 } or die 'no step is made';
	return ($target, $keeper, $holder);
}

# Lets it go on, and waits until it has ended.
sub release_merge
{
	my ($node, @sessions) = @_;
	$_->quit foreach @sessions;
	wait_until { is_at_rest($node) } or die 'the merge does not end';
	return;
}

# All ids from 1 to this one have been claimed by fill().
sub claimed
{
	my ($node, $database) = @_;
	return $node->sql('SELECT coalesce(max(upto), 0) FROM claimed', $database);
}

# How many of these ids are not remembered. Options: database, every => n (asks only for
# each n-th).
sub unknown
{
	my ($node, $first, $last, %option) = @_;
	my $every = $option{every} // 1;

	return $node->sql(counted("BEGIN; SELECT sum(claim(i, i)) FROM generate_series($first, $last, $every) i; ROLLBACK"),
		$option{database});
}

# Check whether a message would be processed if it came now.
sub is_new
{
	my ($node, $msgid, $endpoint, $database) = @_;
	$endpoint //= 'default';
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid', '$endpoint'); ROLLBACK", $database) eq 't';
}

# Segments of the history that are read.
sub compacted_segments
{
	my ($node, $database) = @_;
	return split /\n/, $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'history' AND state = 'quiet' ORDER BY segment}, $database);
}

# Check whether no segment is between two states.
sub is_at_rest
{
	my ($node, $database) = @_;
	return $node->sql(<<'END', $database) eq 't';
SELECT NOT EXISTS (SELECT FROM outbox.ring
	WHERE state IN ('sealed', 'filling', 'retired') OR compacted_into IS NOT NULL
		OR state = 'quiet' AND published_at IS NULL)
END
}

# How many keys are in segments that are read; those of the history and of records.
sub live_keys
{
	my ($node, $database) = @_;
	my $sql = $node->sql(<<'END', $database);
SELECT 'SELECT ' || string_agg(CASE ring
	WHEN 'history' THEN format('(SELECT coalesce(sum(length(keys) / 16), 0) FROM outbox.history_%s)', segment)
	ELSE format('(SELECT count(*) FROM outbox.record_%s)', segment) END, ' + ')
FROM outbox.ring WHERE ring <> 'log' AND state IN ('current', 'sealed', 'quiet')
END
	return $node->sql($sql, $database);
}

# Bytes on disk of all tables of a ring.
sub sizes
{
	my ($node, $ring, $database) = @_;
	return $node->sql("SELECT sum(pg_relation_size(('outbox.${ring}_' || segment)::regclass)) FROM outbox.ring WHERE ring = '$ring'", $database);
}

1;
