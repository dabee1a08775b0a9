# Filters make it unnecessary to look into segments that do not hold an id. Where they are
# missing (after a restart, without memory for them, or with too little) answers are the
# same; they are built in the background, and their memory is freed.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<"END");
$Compaction::small_segments
outbox.record_segment_size = '400kB'
END
prepare($node);

# How many segments there are beside the one that is being written. These have filters.
sub others
{
	my ($database) = @_;
	return $node->sql(q{SELECT count(*) FROM outbox.ring WHERE ring <> 'log' AND state = 'quiet'}, $database);
}

# In how many of these segments the ids were looked for, for each of 100 new ids and the
# claim that followed.
sub segments_looked_into
{
	my ($database) = @_;
	my $count = q{SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes s JOIN outbox.ring r
		ON s.relname = r.ring || '_' || r.segment WHERE r.ring <> 'log' AND r.state = 'quiet'};
	my $before = $node->sql($count, $database);
	my $new = unknown($node, 1_000_000_000, 1_000_000_099, database => $database);

	$new == 100 or die 'new ids are not new';
	return ($node->sql($count, $database) - $before) / 100;
}

sub is_right
{
	my ($name, %option) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(unknown($node, 1, claimed($node, $option{database}), every => 3, %option), 0, "$name: what was claimed is known");
	is(unknown($node, 2_000_000_000, 2_000_000_099, %option), 100, '... and nothing else');
	return;
}

# Filters for all segments; building the larger ones takes several steps. One look in 2000 or so finds its bits set by chance.
sub has_filters
{
	my ($name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually { segments_looked_into($database) < 0.1 } "$name (" . others($database) . ' segments)';
}

fill($node, 9);
eventually { is_at_rest($node) } 'some records are compacted, some wait for that';
cmp_ok(scalar(compacted_segments($node)), '==', 1, '... in one segment');
cmp_ok(others(), '>=', 4, '... beside those of records');
has_filters('a new id is looked for in none of the segments that are quiet');
is_right('with filters');

# No filters are built where no worker is left for a dispatcher: PostgreSQL has one, the launcher is the other.
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->restart;
cmp_ok(segments_looked_into(), '>=', others(), 'after a restart there are no filters');
is_right('without filters');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
is_right('while they are built');
has_filters('they are built in the background');
is_right('with filters again');

$node->append_conf('postgresql.conf', "outbox.filter_memory = 0");
$node->restart;
fill($node, 4);
eventually { is_at_rest($node) } 'without memory for filters, records are compacted';
cmp_ok(segments_looked_into(), '>=', others(), '... and looked for in all segments');
is_right('without memory');

#
# Segments full of ids of 1000 characters have filters of different sizes; a megabyte, the
# least that can be set, has room for about seven.
#
$node->append_conf('postgresql.conf', <<'END');
outbox.filter_memory = '1MB'
outbox.record_segment_size = '4MB'
END
$node->restart;

sub create_database
{
	my ($database) = @_;
	$node->sql("CREATE DATABASE $database");
	$node->sql('CREATE EXTENSION outbox', $database);
	prepare($node, $database, 1000);
	return;
}

sub fill_large
{
	my ($database) = @_;
	fill($node, 5, $database);
	wait_until { is_at_rest($node, $database) } or die 'segments do not come to rest';
	return;
}

# There would be room for one round only if the memory were not freed.
foreach my $time (1 .. 3)
{
	create_database('mayfly');
	fill_large('mayfly');
	has_filters("filters of a database, time $time", 'mayfly');
	$node->sql('DROP DATABASE mayfly');
}
foreach my $time (1 .. 3)
{
	create_database("leaving$time");
	fill_large("leaving$time");
	has_filters("filters of an extension, time $time", "leaving$time");
	$node->sql('DROP EXTENSION outbox', "leaving$time");
}

create_database('changing');
foreach my $time (1 .. 3)
{
	fill_large('changing');
	has_filters("filters of segments, time $time", 'changing');
	$node->set('outbox.retention' => '1s');
	eventually { $node->sql('SELECT outbox_cleanup()', 'changing'); others('changing') == 0 } '... which expire';
	$node->set('outbox.retention' => '1h');
}

$node->sql('DROP DATABASE changing');

# Two databases at a time, with room for one and a half.
create_database($_) foreach 'first', 'second';
fill_large($_) foreach 'first', 'second';
eventually
{
	my $looks = segments_looked_into('first') + segments_looked_into('second');
	my $all = others('first') + others('second');
	$looks > 0.9 && $looks < $all - 2
}
'with too little memory some segments have filters, others have not';
is_right("with too little memory, in $_", database => $_) foreach 'first', 'second';
$node->sql('DROP DATABASE first');
has_filters('what is given back is used by another database', 'second');

done_testing();
