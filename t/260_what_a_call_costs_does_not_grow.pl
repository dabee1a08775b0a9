# Counted, not timed: the locks that a transaction has, and the records that it writes
# to the WAL. What a session remembers to save work is forgotten when it must be.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Test::More;

my $node = Outbox->create('main', conf => <<'END');
outbox.dispatch = off
checkpoint_timeout = '1h'
autovacuum = off
END
$node->sql('CREATE EXTENSION pg_walinspect');
$node->sql('CREATE SEQUENCE own');
my $session = $node->session;

# What is looked up and built once for a session.
$session->query_safe(q{SELECT nextval('own'); BEGIN; SELECT outbox_begin('warm'), outbox_enqueue('d', 'x'), outbox_commit(); COMMIT});

my $handler = q{SELECT outbox_begin('m'); SELECT count(outbox_enqueue('d', 'x')) FROM generate_series(1, 3); SELECT outbox_commit()};
$session->query_safe("BEGIN; $handler");
is($session->query_safe(<<'END'), <<'END' =~ s/\n\z//r, 'a transaction has one lock on each table that it needs, however many messages it sends');
SELECT regexp_replace(relation::regclass::text, '_[0-9]+', '_N') COLLATE "C", mode FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation::regclass::text ~ '^outbox[.](instance|log|record|forgotten|ring)' ORDER BY 1
END
outbox.instance|AccessShareLock
outbox.log_N|RowExclusiveLock
outbox.log_N_tx_idx|RowExclusiveLock
outbox.record_N|RowExclusiveLock
outbox.record_N_pkey|RowExclusiveLock
END
$session->query_safe('COMMIT');

# The records of 100 transactions of 5 rows each, without those of other processes.
my $start = $node->sql('SELECT pg_current_wal_insert_lsn()');
my ($first) = $session->query_safe(q{BEGIN; SELECT pg_current_xact_id(); ROLLBACK}) =~ /(\d+)/;
foreach my $n (1 .. 100)
{
	$session->query_safe(qq{BEGIN; SELECT outbox_begin('counted-$n'), outbox_enqueue('d', '1'), outbox_enqueue('d', '2'); SELECT outbox_enqueue('d', '3'), outbox_enqueue('d', '4'), outbox_commit(); COMMIT});
}
my %records = map { split /\|/ } split /\n/, $node->sql(<<"END");
SELECT resource_manager, count(*) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
WHERE xid::text::bigint > $first GROUP BY 1
END
is($records{Heap}, 500, 'a row is one record of the WAL');
cmp_ok($records{Btree}, '<=', 520, '... and one of its index, but for pages that are split');
is($records{Transaction}, 100, '... a commit is one');
cmp_ok($records{Sequence}, '<=', 400 / 64 + 1, 'ids are reserved 64 at a time');
delete @records{qw(Heap Btree Transaction Sequence)};
is_deeply([ grep { !/^(XLOG|Heap2|Standby)$/ } keys %records ], [], '... and there is nothing else');
my ($longest) = $node->sql(<<"END");
SELECT max(record_length - fpi_length) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
WHERE resource_manager = 'Heap' AND xid::text::bigint > $first
  AND block_ref LIKE '%/' || pg_relation_filenode('outbox.log_' || (SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current')) || ' %'
END
is($longest, 55 + 8 + 8 + 8 + 4 + length('d1') + 2 + 16 + 1 + length('counted-100'),
	'an id of a message takes 16 bytes; what is NULL, or follows from the rest, nothing');
is($session->query_safe('SELECT lastval()'), 1, 'lastval() is that of the application');

# The sessions take turns, and each has drawn from the same block before.
my @sessions = ($session, $node->session);
$_->query_safe(q{SELECT outbox_enqueue('turns', 'x')}) foreach @sessions;
my @turns = map { $sessions[ $_ % 2 ]->query_safe("SELECT outbox_enqueue('turns', '$_', message_id => 'turn-$_')") =~ s/turn-//r } 1 .. 150;
is($node->sql(q{SELECT string_agg(substring(message_id FROM 6), ' ' ORDER BY id) FROM outbox.pending WHERE message_id ~ '^turn-'}),
	"@turns", 'ids are in the order of the calls of all sessions');

# A session that knows that no id is forgotten learns of the first one; and of one by itself.
$node->sql(q{SELECT outbox_forget('m')});
is($session->query_safe(q{BEGIN; SELECT outbox_begin('m'), outbox_commit(); COMMIT}), 't|0', 'a session notices that another one has made an id new again');
$session->query_safe(q{SELECT outbox_forget('warm')});
is($session->query_safe(q{BEGIN; SELECT outbox_begin('warm', concurrency => 'pessimistic'), outbox_commit(); COMMIT}), 't|0', '... or itself');
is($session->query_safe(q{BEGIN; SELECT outbox_begin('m'), outbox_commit(); COMMIT}), 'f|0', '... once');

# Keys must stay what they are: records of years bear them.
is($node->sql(<<'END'), 0, 'a key is the beginning of a SHA-256');
SELECT count(*) FROM outbox.record_0 WHERE key <> encode(substr(sha256(
	int4send(length('default')) || convert_to('default', 'UTF8') || int4send(octet_length(msgid)) || convert_to(msgid, 'UTF8')), 1, 16), 'hex')::uuid
END

done_testing();
