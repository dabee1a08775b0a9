# A store that is away or hangs stops no message: the dispatcher goes on publishing, says
# what is wrong, ends when it must, lets nothing expire, and propagates the ids when the
# store is back. A session that claims long after it has looked looks again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $redis_store = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, conf => <<'END');
outbox.retention = '1s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
outbox.command_timeout = '120s'
outbox.connect_timeout = '120s'
END
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'\noutbox.retention = '1h'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});

my %proxy = (redis => Proxy->new($redis_store), postgresql => Proxy->new($server));
my %url = (redis => $proxy{redis}->url, postgresql => $server->store_url('shard', $proxy{postgresql}));

sub records
{
	my ($database) = @_;
	return $node->sql('SELECT count(*) FROM outbox.records', $database);
}

# A store hangs: what is asked of it does not arrive. Then it does.
sub hang
{
	my ($kind) = @_;
	$proxy{$kind}->hold($kind eq 'redis' ? 'ROLE' : 'SELECT outbox');
	return;
}

sub recover
{
	my ($kind) = @_;
	$proxy{$kind}->pass;
	$proxy{$kind}->release($_) foreach 1 .. $proxy{$kind}->opened;
	return;
}

sub create
{
	my ($kind) = @_;
	$node->sql("CREATE DATABASE $kind");
	$node->sql("CREATE EXTENSION outbox; INSERT INTO outbox.endpoint (name, retention, dedup_store) VALUES ('sales', '1 s', '$url{$kind}'), ('plain', NULL, NULL)", $kind);
	eventually { $node->status("redis_state = 'up' AND problem IS NULL", $kind) eq 't' } "$kind: a database with a store";
	return;
}

# Handles a message. Other sessions would look again when they claim, in a store that hangs, if
# half of outbox.replay_window has passed since they began, or fail if the retention has.
my $patience = q{SET outbox.replay_window = '1h'; SET outbox.retention = '1h'};

sub handle
{
	my ($msgid, $endpoint, $database) = @_;
	$node->sql("$patience; BEGIN; SELECT outbox_begin('$msgid', '$endpoint'), outbox_enqueue('$database', '$msgid'), outbox_commit(); COMMIT", $database);
	return;
}

sub patient_session
{
	my ($database) = @_;
	my $session = $node->session($database);
	$session->query_safe($patience);
	return $session;
}

foreach my $kind (sort keys %url)
{
	create($kind);
	handle('first', 'sales', $kind);
	eventually { records($kind) == 0 } 'what is propagated expires';

	# A message is begun before the store hangs and committed after.
	my $session = patient_session($kind);
	$session->query("BEGIN; SELECT outbox_begin('m1', 'sales'); SELECT outbox_enqueue('$kind', 'm1')");
	hang($kind);
	$session->query("SELECT outbox_commit(); COMMIT");
	$session->quit;
	eventually { $redis->count($kind) == 2 } 'the store hangs: its message is sent';
	handle("plain $_", 'plain', $kind) foreach 1 .. 20;
	my $took = seconds { eventually { $redis->count($kind) == 22 } '... and those of others' };
	cmp_ok($took, '<', 110, '... without waiting for the store');
	eventually { $node->status('pending', $kind) == 0 } '... nothing is pending';
	is($node->sql("SELECT outbox_wait('plain 20', 'plain', '60 s')", $kind), 't', '... and outbox_wait() knows');

	# Nothing expires meanwhile.
	my $until = $node->sql("SELECT clock_timestamp() + interval '4 s'");
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$until'");
	is(records($kind), 21, 'long after the retention all records are there');
	is($node->sql("BEGIN; SELECT outbox_begin('m1', 'sales'); ROLLBACK", $kind), 'f', '... so it is a duplicate');
	recover($kind);
	eventually { records($kind) == 0 } 'the store is back: ids are propagated, and then records expire';
	eventually { $node->status('problem IS NULL', $kind) eq 't' } '... and there is no problem';

	# The store is away.
	$node->sql("UPDATE outbox.endpoint SET dedup_store = '" . ($kind eq 'redis' ? 'redis://:secret@127.0.0.1:1' : 'postgresql://u:secret@127.0.0.1:1/db') . "' WHERE name = 'sales'", $kind);
	eventually { $node->status("problem LIKE 'The deduplication store \"%:***\@127.0.0.1:1%\" cannot be used, so ids wait%'", $kind) eq 't' }
	'a store that is not there shows in outbox.status';
	is($node->status("problem LIKE '%secret%'", $kind), 'f', '... without the password');
	is($node->sql("SELECT outbox_cleanup()", $kind), 0, '... outbox_cleanup() answers');
	$node->sql("UPDATE outbox.endpoint SET dedup_store = '$url{$kind}' WHERE name = 'sales'", $kind);
	eventually { $node->status('problem IS NULL', $kind) eq 't' } 'the right one again';

	# DROP DATABASE does not wait for a store that hangs.
	$session = patient_session($kind);
	$session->query("BEGIN; SELECT outbox_begin('last', 'sales')");
	hang($kind);
	$session->query('SELECT outbox_commit(); COMMIT');
	$session->quit;
	eventually { $proxy{$kind}->held } 'the dispatcher waits for the store';
	$took = seconds { $node->sql("DROP DATABASE $kind") };
	cmp_ok($took, '<', 110, 'DROP DATABASE while the store hangs');
	recover($kind);
}

# A fast shutdown does not wait either.
create('redis');
handle('m', 'sales', 'redis');
hang('redis');
eventually { $proxy{redis}->held } 'the dispatcher waits for the store';
my $took = seconds { $node->stop('fast') };
cmp_ok($took, '<', 110, 'a fast shutdown while the store hangs');
recover('redis');
$node->start;
eventually { records('redis') == 0 } 'the next one propagates what is left';

# A Redis that may evict keys.
$redis_store->command('CONFIG', 'SET', 'maxmemory', '100mb');
$redis_store->command('CONFIG', 'SET', 'maxmemory-policy', 'volatile-lru');
eventually { $node->status("problem LIKE '%may forget ids when its memory is full. Set its maxmemory-policy to noeviction.'", 'redis') eq 't' }
'outbox.status warns of a store that may evict ids';
$redis_store->command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
eventually { $node->status('problem IS NULL', 'redis') eq 't' } '... until it does not';

# A Redis that is full refuses ids; nothing is lost.
my $session = patient_session('redis');
$session->query("BEGIN; SELECT outbox_begin('when full', 'sales')");
$redis_store->command('CONFIG', 'SET', 'maxmemory', '1');
$session->query('SELECT outbox_commit(); COMMIT');
eventually { $node->status("problem LIKE '%OOM%'", 'redis') eq 't' } 'a store that is full shows, too';
is(records('redis'), 1, '... the record stays');
$redis_store->command('CONFIG', 'SET', 'maxmemory', '0');
eventually { records('redis') == 0 } '... until there is room';

#
# A session looks early and claims late: meanwhile another shard has processed the message.
#
$node->sql('CREATE DATABASE other');
$node->sql("CREATE EXTENSION outbox; INSERT INTO outbox.endpoint (name, retention, dedup_store) VALUES ('sales', '1 h', '$url{redis}')", 'other');
$node->sql("UPDATE outbox.endpoint SET retention = '1 h' WHERE name = 'sales'", 'redis');
$session->query_safe('RESET outbox.replay_window; RESET outbox.retention');
$session->query("BEGIN; SELECT outbox_begin('late', 'sales'); SELECT outbox_enqueue('redis', 'late')");
$node->handle('late', 'sales', database => 'other', stream => 'other');
eventually { $node->sql("BEGIN; SELECT outbox_begin('late', 'sales'); ROLLBACK", 'redis') eq 'f' } 'another shard has processed a message that is open here';
my $until = $node->sql("SELECT clock_timestamp() + interval '1 s'");
$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$until'");
$session->query("\\set VERBOSITY verbose\nSELECT outbox_commit()");
like($session->{stderr}, qr/23505.*already been processed/, 'a late claim finds it');
$session->query('ROLLBACK');
is(scalar(grep { $_ eq 'late' } $redis->bodies('redis')), 0, '... and sends nothing');
$session->quit;

done_testing();
