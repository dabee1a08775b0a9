# What docs/deduplication.md promises about storage is true: a compacted id takes little
# more than 16 bytes on disk, tables and indexes together.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $ids = 200_000;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.cleanup_interval = '100ms'
outbox.retention = '1h'
outbox.record_segment_size = '256kB'
END

# All that the segments of the history have on disk.
my $bytes = q{SELECT coalesce(sum(pg_total_relation_size(('outbox.history_' || segment)::regclass)), 0), coalesce(sum(keys), 0)
FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'};

# Records as they are added by a server that has this database as its store.
$node->sql(<<"SQL");
DO \$\$
BEGIN
	FOR batch IN 1 .. $ids / 2000 LOOP
		PERFORM outbox.store_add(ARRAY(SELECT md5(batch || '/' || i)::uuid FROM generate_series(1, 2000) i));
		COMMIT;
	END LOOP;
END
\$\$;
SQL
eventually { is_at_rest($node) && (split /\|/, $node->sql($bytes))[1] > $ids / 4 } 'many of them are compacted';

my ($size, $keys) = split /\|/, $node->sql($bytes);
my $each = sprintf '%.2f', $size / $keys;
cmp_ok($each, '<', 20, "a compacted id takes less than 20 bytes on disk, all included: $each");
cmp_ok($each, '>=', 16, '... and its 16');

done_testing();
