# An endpoint is altered while a session reads the settings of endpoints, at any isolation
# level: it reads the old or the new ones, and never takes the endpoint for dropped.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Test::More;

my $node = Outbox->create('main', conf => 'outbox.dispatch = off');

# Free space, then a row that is read slowly, then the row that is altered.
$node->sql(q{SELECT count(outbox_create_endpoint('free' || i)) FROM generate_series(1, 10) i});
$node->sql(q{INSERT INTO outbox.endpoint (name, dedup_store) SELECT 'slow', string_agg(sha256(i::text::bytea)::text, '') FROM generate_series(1, 500) i});
$node->sql(q{SELECT outbox_create_endpoint('altered')});
my $index = $node->sql(q{SELECT indexrelid::regclass FROM pg_index WHERE indrelid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'outbox.endpoint'::regclass)});

foreach my $isolation ('SERIALIZABLE', 'REPEATABLE READ', 'READ COMMITTED')
{
	my ($slow, $reader) = ($node->session, $node->session);

	$node->sql(q{DELETE FROM outbox.endpoint WHERE name LIKE 'free%'});
	$node->sql('VACUUM outbox.endpoint');
	$slow->query_safe("BEGIN; REINDEX INDEX $index");
	my $pid = $reader->query_safe('SELECT pg_backend_pid()');
	$reader->query_until(qr/asked/, "\\echo asked\nBEGIN ISOLATION LEVEL $isolation; SELECT outbox_begin('id', 'altered');\n");
	eventually { $node->sql("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Lock' } "$isolation: a session is in the midst of reading";
	my $before = $node->sql(q{SELECT ctid FROM outbox.endpoint WHERE name = 'altered'});
	$node->sql(q{SELECT outbox_alter_endpoint('altered', retention => '1 hour')});
	isnt($node->sql(q{SELECT ctid FROM outbox.endpoint WHERE name = 'altered'}), $before, '... the row moves');
	$slow->query_safe('COMMIT');
	is($reader->query('SELECT 1'), "t\n1", '... and it finds the endpoint');
	is($reader->{stderr} =~ /ERROR/, '', '... without an error');
	$_->quit foreach $slow, $reader;
	$node->sql(q{DELETE FROM outbox.endpoint WHERE name = 'altered'; SELECT outbox_create_endpoint('free' || i) FROM generate_series(1, 10) i});
	$node->sql('VACUUM outbox.endpoint');
	$node->sql(q{UPDATE outbox.endpoint SET concurrency = 'optimistic' WHERE name = 'slow'; SELECT outbox_create_endpoint('altered')});
}

# Reading leaves no predicate locks, so it makes no transaction fail with 40001.
is($node->sql(<<'END'), "t\n0", 'nothing that is read so conflicts with anything');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outbox_begin('id', 'altered');
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid() AND relation::regclass::text LIKE 'outbox.%';
ROLLBACK;
END

done_testing();
