# No row of the log, the windows or the records is ever updated or deleted: an old
# snapshot, which keeps VACUUM from removing rows, costs nothing, and the space is freed
# nevertheless.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retention = '1s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
autovacuum = off
END
$node->sql('CREATE EXTENSION pgstattuple');
$node->sql('CREATE TABLE business (n bigint)');

my $reader = $node->session;
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM business');

sub dead_rows
{
	return $node->sql(<<'END');
SELECT coalesce(sum((pgstattuple(c.oid)).dead_tuple_count), 0)
FROM pg_class c
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(log|window|record)_'
END
}

my $generation = q{SELECT min(generation) FROM (SELECT max(generation) AS generation FROM outbox.ring WHERE ring <> 'history' GROUP BY ring) r};
my $start = $node->sql($generation);
my $script = <<'END';
\set n random(1, 9000000000000000)
BEGIN;
SET LOCAL outbox.retention = '1h';
INSERT INTO business VALUES (:n);
SELECT outbox_begin('m' || :n);
SELECT outbox_enqueue('d', :n::text);
SELECT outbox_commit();
COMMIT;
END
my $dead = 0;
eventually
{
	$node->load(clients => 4, transactions => 50, scripts => [$script]);
	$dead += dead_rows();
	$node->sql($generation) > $start + 12;
}
'the rings rotate below an old snapshot';
ok($node->wait_until_sent, 'everything is sent');

eventually
{
	$node->sql(q{SELECT count(*) = 0 FROM outbox.records}) eq 't'
	  and $node->sql('SELECT ' . join ' + ', map { "(SELECT count(*) FROM outbox.log_$_)" } 0 .. 3) == 0;
}
'the space of log and records comes back';
is($dead + dead_rows(), 0, '... without a dead row at any time');
is($reader->query_safe('SELECT count(*) FROM business'), 0, '... while the snapshot is open');
is_exactly_once([ $redis->bodies('d') ], [ split /\n/, $node->sql('SELECT n FROM business') ],
	'everything was sent once');
$reader->quit;

done_testing();
