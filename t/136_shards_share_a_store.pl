# Several databases may share one deduplication store, a Redis or a PostgreSQL: what one
# of them has processed is a duplicate in the others, also after its record has expired.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");
my $redis_store = Redis->new;

# The PostgreSQL store is a server of its own that sends nothing.
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'\noutbox.retention = '1h'\noutbox.cleanup_interval = '100ms'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});

my %url = (
	redis => $redis_store->url,
	postgres => $server->store_url('shard'));

# Begins, enqueues and commits; returns the answer of outbox_begin().
sub handle
{
	my ($database, $msgid, $endpoint, %option) = @_;
	my $sql = <<END;
BEGIN;
SELECT outbox_begin('$msgid', '$endpoint', '@{[ $option{concurrency} // 'optimistic' ]}') AS is_new \\gset
SELECT CASE WHEN :'is_new' THEN outbox_enqueue('$endpoint', '$database $msgid') END AS id \\gset
SELECT outbox_commit() AS n \\gset
\\echo :is_new
@{[ $option{end} // 'COMMIT' ]};
END
	return $node->sql($sql, $database);
}

# Check whether the store has the id.
my %has = (
	redis => sub { return $redis_store->command('EXISTS', 'outbox:dedup:' . pack('H*', $_[0] =~ tr/-//dr)); },
	postgres => sub { return $server->sql("SELECT outbox.store_contains('$_[0]')::int"); });

sub key_of
{
	my ($database, $msgid) = @_;
	return $node->sql("SELECT key FROM (SELECT * FROM outbox.record_0 UNION ALL SELECT * FROM outbox.record_1) r WHERE msgid = '$msgid'", $database);
}

foreach my $kind (sort keys %url)
{
	my @shards = map { "${kind}_$_" } 1 .. 2;
	foreach my $shard (@shards)
	{
		$node->sql("CREATE DATABASE $shard");
		$node->sql("CREATE EXTENSION outbox; INSERT INTO outbox.endpoint (name, retention, dedup_store) VALUES ('sales', '1 h', '$url{$kind}')", $shard);
	}
	note "the store is a $kind";
	my ($one, $two) = @shards;

	is(handle($one, 'm1', 'sales'), 't', 'a message is new');
	my $key = key_of($one, 'm1');
	eventually { $has{$kind}->($key) } '... and then its id is in the store';
	is(handle($one, 'm1', 'sales'), 'f', 'a duplicate here');
	is(handle($two, 'm1', 'sales'), 'f', 'a duplicate in another database');
	is(handle($two, 'm1', 'sales', concurrency => 'pessimistic'), 'f', '... in either mode');
	is($node->sql(q{SELECT outbox_wait('m1', 'sales', '3 min')}, $two), 't', 'outbox_wait() knows it there, too');
	is($node->sql('SELECT count(*) FROM outbox.records', $two), 0, 'what is only in the store has no record there');

	is(handle($two, 'm2', 'sales', concurrency => 'pessimistic'), 't', 'a message that begin claims');
	$key = key_of($two, 'm2');
	eventually { $has{$kind}->($key) } '... its id comes into the store';
	is(handle($one, 'm2', 'sales'), 'f', '... so it is a duplicate elsewhere');

	is(handle($one, 'm3', 'sales', end => 'ROLLBACK'), 't', 'what is rolled back');
	is(handle($one, 'm4', 'sales', end => "PREPARE TRANSACTION '$one'"), 't', 'what is prepared');
	is(handle($one, 'm5', 'sales'), 't', 'what comes after them');
	$key = key_of($one, 'm5');
	eventually { $has{$kind}->($key) } '... is in the store';
	is(handle($two, 'm3', 'sales', end => 'ROLLBACK'), 't', 'what was rolled back is not');
	is(handle($two, 'm4', 'sales', end => 'ROLLBACK'), 't', 'what is prepared is not yet');
	$node->sql("COMMIT PREPARED '$one'", $one);
	eventually { handle($two, 'm4', 'sales', end => 'ROLLBACK') eq 'f' } '... but after COMMIT PREPARED';

	is(handle($one, 'm1', 'default'), 't', 'another endpoint has its own ids');
	is(handle($two, 'm1', 'default'), 't', '... and no store');

	# One window with many messages.
	$node->sql(<<'SQL', $one);
DO $$
BEGIN
	FOR i IN 1 .. 2500 LOOP
		PERFORM outbox_begin('many ' || i, 'sales');
		PERFORM outbox_commit();
	END LOOP;
END
$$;
SQL
	eventually { $node->sql(<<'SQL', $two) == 25 }
BEGIN;
SELECT count(*) FROM generate_series(1, 2500, 100) i, outbox_begin('many ' || i, 'sales') b, LATERAL (SELECT outbox_commit() + 0 * i) c WHERE NOT b;
ROLLBACK;
SQL
	'thousands of ids in one transaction come into the store';

	eventually { $node->status('problem IS NULL', $one) eq 't' } 'outbox.status has no problem';
}

my ($ms) = sort { $a <=> $b } map { $redis_store->command('PTTL', $_) } grep { /^outbox:dedup:/ } @{ $redis_store->command('KEYS', 'outbox:dedup:*') };
cmp_ok($ms, '>', 3_000_000, 'in a Redis each id expires when the retention of the endpoint is over');
cmp_ok($ms, '<=', 3_600_000, '... and not later');

# In a PostgreSQL, ids expire by its own retention, though that server has no Redis.
is($server->sql('SELECT count(*) > 2500 FROM outbox.records'), 't', 'in a PostgreSQL ids are records');
$server->set('outbox.retention' => '1s', 'outbox.replay_window' => '0');
$node->sql("UPDATE outbox.endpoint SET retention = '1 s'", 'postgres_1');
eventually { $server->sql('SELECT count(*) FROM outbox.records') == 0 } '... and expire as its own settings say';
eventually { $node->status("problem LIKE '%forgets ids after 1 s, but an endpoint needs them for 3600 s%'", 'postgres_2') eq 't' }
'outbox.status complains where an endpoint wants them longer';
# (It may have reported a problem between the two settings above.)
eventually { $node->status('problem IS NULL', 'postgres_1') eq 't' } '... and only there';
$server->sql(q{ALTER DATABASE postgres SET outbox.retention = '1 h'});
eventually { $node->status('problem IS NULL', 'postgres_2') eq 't' } '... until the database of the store has it set, which sessions that are open do not notice';

done_testing();
