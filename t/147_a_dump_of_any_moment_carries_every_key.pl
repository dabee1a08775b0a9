# A dump whose snapshot is older than the compaction of a segment, and whose locks are
# younger, contains every key. So do a dump in the middle of a merge, a dump of a database
# that was restored from another one, a copy by TEMPLATE, and pg_upgrade.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $redis = Redis->new;
my $conf = "$Compaction::small_segments\noutbox.takeover_delay = '1s'\n";
my $node = Outbox->create('main', redis => $redis, conf => $conf);
my $folder = PostgreSQL::Test::Utils::tempdir();
my $database = 'restored0';
prepare($node);

# Dumps a database and restores it into a new one, which is returned; by several sessions,
# which meet keys that the dump has twice.
sub restore
{
	my ($name, $source, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$database++;
	$node->command_ok([ 'pg_dump', '--format=custom', @options, '--file', "$folder/$database", $node->connstr($source) ], "$name: pg_dump");
	$node->sql("CREATE DATABASE $database");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '--jobs=4', '--dbname', $node->connstr($database), "$folder/$database" ], '... restored');
	return $database;
}

# Checks that a database remembers these ids and no others.
sub remembers
{
	my ($upto, $in) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(unknown($node, 1, $upto, database => $in, every => 7), 0, '... all that was claimed is known');
	is(unknown($node, $upto + 1, $upto + 100, database => $in), 100, '... and nothing else');
	is(live_keys($node, $in), $upto, '... and kept once');
	return;
}

sub segments
{
	my ($ring, $state) = @_;
	return $node->sql("SELECT count(*) FROM outbox.ring WHERE ring = '$ring' AND state = '$state'");
}

sub blocks_of_retired
{
	return $node->sql(<<'END');
SELECT count(*) FROM outbox.ring
WHERE ring = 'record' AND state = 'retired' AND pg_relation_size(('outbox.record_' || segment)::regclass) > 0
END
}

#
# The snapshot of a dump that has taken no locks yet.
#
fill($node, 5);
eventually { is_at_rest($node) } 'five segments are full';
is(scalar(compacted_segments($node)), 0, '... and not compacted yet');
my $dump = $node->session;
my $snapshot = $dump->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
my $then = claimed($node);
fill($node, 1);
eventually { segments('history', 'quiet') == 1 && segments('record', 'retired') == 6 } 'they are compacted while a dump holds its snapshot';
$node->sql('SELECT outbox_cleanup()') foreach 1 .. 3;
is(blocks_of_retired(), 6, '... and not emptied');

my $old = restore('with that snapshot', 'postgres', "--snapshot=$snapshot");
remembers($then, $old);
remembers(claimed($node), restore('with a new snapshot', 'postgres'));

# There are twelve segments. When none is empty any more, the last one grows.
fill($node, 5);
eventually { segments('record', 'empty') == 0 } 'all segments of records are in use';
my $current = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'});
$node->sql("DO 'BEGIN PERFORM claim(@{[ claimed($node) + 1 ]}, @{[ claimed($node) + 3000 ]}); INSERT INTO claimed VALUES (@{[ claimed($node) + 3000 ]}); END'");
$node->sql('SELECT outbox_cleanup()') foreach 1 .. 3;
is($node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'}), $current, '... the last one grows');
cmp_ok(blocks_of_retired(), '>=', 6, '... those that the dump may need stay');
remembers($then, restore('with the old snapshot', 'postgres', "--snapshot=$snapshot"));
is(unknown($node, 1, claimed($node)), 0, 'meanwhile nothing is forgotten');
$dump->query_safe('COMMIT');
$dump->quit;
eventually { blocks_of_retired() == 0 && is_at_rest($node) } 'when the dump has ended its segments are emptied';
eventually { $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'}) ne $current } '... and the ring turns';
remembers(claimed($node), 'postgres');

#
# A dump in the middle of a merge, which waits for a lock.
#
$node->sql(q{ALTER SYSTEM SET outbox.record_segment_size = '300kB'});
$node->reload;
my ($target, @holders);
until (@holders && filling($node) eq $target)
{
	release_merge($node, @holders) if @holders;
	until (segments('record', 'quiet') == 5)
	{
		fill($node, 1);
		wait_until { is_at_rest($node) } or die 'segments do not come to rest';
	}
	($target, @holders) = hold_merge($node, 1, 1);
}
cmp_ok($node->sql("SELECT count(*) FROM $target"), '>', 0, 'a merge has made a step');
is(filling($node), $target, '... and waits in the middle');
remembers(claimed($node), restore('in the middle of a merge', 'postgres'));
release_merge($node, @holders);

#
# What was compacted is restored as records without a name.
#
eventually { is_at_rest($node) } 'the merge ends';
my $first = restore('of compacted records', 'postgres');
remembers(claimed($node), $first);
cmp_ok($node->sql(<<'END', $first), '>', 1000, '... some of which have no name');
SELECT (SELECT count(*) FROM outbox.records WHERE msgid IS NULL AND endpoint IS NULL) +
	(SELECT coalesce(sum(records), 0) FROM outbox.compacted WHERE endpoint IS NULL)
END
remembers(claimed($node), restore('of what was restored', $first));
fill($node, 8, $first);
eventually { is_at_rest($node, $first) && compacted_segments($node, $first) } 'what was restored is compacted again';
remembers(claimed($node, $first), $first);

#
# Copies of whole databases.
#
$node->sql("CREATE DATABASE copy TEMPLATE $first");
remembers(claimed($node, $first), 'copy');
fill($node, 8, 'copy');
eventually { is_at_rest($node, 'copy') } 'a copy compacts';
remembers(claimed($node, 'copy'), 'copy');

# Each further database costs pg_upgrade many seconds.
$node->sql("DROP DATABASE $_") foreach 'copy', map { "restored$_" } 1 .. substr($database, 8);
my $upgraded = Outbox->create('new', redis => $redis, conf => $conf, started => 0);
my $bin = $node->config_data('--bindir');
my $compacted = compacted_segments($node);
$node->stop;
chdir $folder or die "chdir: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-b', $bin, '-B', $bin, '-d', $node->data_dir, '-D', $upgraded->data_dir,
		'-s', $node->host, '-p', $node->port, '-P', $upgraded->port ], 'pg_upgrade');
$node = $upgraded;
$node->start;
remembers(claimed($node), 'postgres');
is(scalar(compacted_segments($node)), $compacted, '... compacted as it was');
fill($node, 8);
eventually { is_at_rest($node) } '... and compaction goes on';
remembers(claimed($node), 'postgres');

done_testing();
