# For an endpoint whose ids are propagated, the log has a receipt for each record. Receipts
# are never sent, counted or shown; a dump contains those that are not propagated yet.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "restart_after_crash = on\noutbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");
my $folder = PostgreSQL::Test::Utils::tempdir();

my $log = 'SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3';

# The receipts in the log of a database: endpoint and message.
sub receipts
{
	my ($database) = @_;
	return $node->sql("SELECT string_agg(endpoint || ' ' || msgid, ', ' ORDER BY id) FROM ($log) l WHERE dest IS NULL", $database);
}

# What the newest window notes: windows opened, published, propagated.
sub position
{
	my ($database) = @_;
	return $node->sql(<<END, $database);
SELECT number || ' ' || published || ' ' || propagated FROM (
	SELECT * FROM outbox.window_0 UNION ALL SELECT * FROM outbox.window_1 UNION ALL
	SELECT * FROM outbox.window_2 UNION ALL SELECT * FROM outbox.window_3) w
ORDER BY number DESC LIMIT 1
END
}

sub all_is_propagated
{
	my ($database) = @_;
	return position($database) =~ /^(\d+) \1 \1$/;
}

my $endpoint = "INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('told', '" . $store->url . "'), ('silent', NULL)";
$node->sql($endpoint);

$node->handle('m1', 'told', messages => 2);
$node->handle('m2', 'silent', messages => 2);
is(receipts(), 'told m1', 'an endpoint whose ids are propagated leaves receipts, another does not');
ok($node->wait_until_sent, 'messages are sent');
eventually { $redis->count('d') == 4 } '... and nothing else';
$node->handle('m3', 'told', messages => 0);
is(receipts(), 'told m1, told m3', 'a message without outgoing ones leaves one, too');
eventually { all_is_propagated() } 'receipts are propagated, and the newest window says so';
is($node->sql("SELECT outbox_begin('m3', 'told')"), 'f', 'a duplicate is one');
$node->sql("BEGIN; SELECT outbox_begin('m3', 'told'); SELECT outbox_commit(); COMMIT");
$node->sql(<<'END');
BEGIN;
SAVEPOINT s;
SELECT outbox_begin('m4', 'told');
SELECT outbox_commit();
ROLLBACK TO s;
SELECT outbox_begin('m5', 'told', 'pessimistic');
SELECT outbox_commit();
COMMIT;
END
is(receipts(), 'told m1, told m3, told m5', 'duplicates and what was rolled back leave none');
is($redis->count('d'), 4, 'no receipt was sent');
$node->sql('BEGIN; SELECT outbox_replay(now() - interval \'1 hour\'); COMMIT');
eventually { $redis->count('d') == 8 } 'outbox_replay() sends the messages again';
is(receipts(), 'told m1, told m3, told m5', '... and copies no receipt');
is($node->sql(q{SELECT outbox_wait('m3', 'told', '3 min')}), 't', 'outbox_wait() knows a message without outgoing ones');

# While Redis is away.
$redis->stop;
$node->handle('m6', 'told', messages => 1);
$node->handle('m7', 'told', messages => 0);
ok($node->poll_query_until('postgres', 'SELECT windows > 0 FROM outbox.status'), 'Redis is away: windows wait');
is($node->status('pending'), 1, '... only messages are pending');
is($node->sql('SELECT count(*) FROM outbox.pending'), 1, '... and shown');
is($node->sql(q{SELECT outbox_wait('m7', 'told', '0')}), 't', 'outbox_wait() does not wait for a receipt');
is($node->sql(q{SELECT outbox_wait('m6', 'told', '0')}), 'f', '... but for a message');

# A dump contains the receipts that are pending, and no others.
my $dump = sub {
	my ($name) = @_;
	$node->command_ok([ 'pg_dump', '--file', "$folder/$name", $node->connstr('postgres') ], "pg_dump: $name");
	$node->sql("CREATE DATABASE $name");
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', "$folder/out", '-f', "$folder/$name", $node->connstr($name) ],
		'... restored');
	return;
};
$dump->('copy');
is(receipts('copy'), 'told m6, told m7', 'a dump has the receipts that are pending');
eventually { $node->status('pending', 'copy') == 1 } '... and the message';

$redis->start;
ok($node->wait_until_sent, 'Redis is back');
ok($node->wait_until_sent('copy'), '... also for the restored database');
eventually { all_is_propagated() } 'all is propagated';
eventually { all_is_propagated('copy') } '... also in the restored database';
$dump->('later');
is(receipts('later'), '', 'a later dump has no receipt');
is($node->sql("SELECT count(*) FROM ($log) l", 'later'), 0, '... and no message');

# A dispatcher that was killed begins where the newest window says.
$node->handle("n$_", 'told', messages => 1) foreach 1 .. 5;
$node->kill_dispatcher;
eventually { $node->dispatcher && all_is_propagated() } 'a killed dispatcher has a successor that propagates what is left';

done_testing();
