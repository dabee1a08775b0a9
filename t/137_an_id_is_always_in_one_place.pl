# An id is added to the store after its messages are in Redis and before its record can
# expire. Whatever is cut or killed meanwhile, it is at every moment in at least one of the
# two; and what a store has lost is added again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, conf => <<'END');
restart_after_crash = on
outbox.command_timeout = '60s'
outbox.connect_timeout = '60s'
outbox.retention = '1h'
outbox.cleanup_interval = '100ms'
END
my $redis_store = Redis->new;
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'\noutbox.retention = '1h'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});

my ($kind, $store, $proxy, $n, $msgid, %key);
my %text = (redis => 'WATERMARK', postgresql => 'store_add');	# in the packet that adds ids

sub is_in_store
{
	my ($msgid) = @_;
	return $redis_store->command('EXISTS', 'outbox:dedup:' . pack('H*', $key{"$kind $msgid"})) if $kind eq 'redis';
	return $server->sql("SELECT outbox.store_contains('" . $key{"$kind $msgid"} . "')") eq 't';
}

sub has_record
{
	my ($msgid) = @_;
	return $node->sql("SELECT count(*) FROM outbox.records WHERE msgid = '$msgid'", $kind);
}

# Handles a message, notes the key of its record, and returns its id.
sub process
{
	my ($endpoint) = (@_, 'sales');
	my $msgid = 'm' . ++$n;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid', '$endpoint'); SELECT outbox_enqueue('$kind', '$msgid'); SELECT outbox_commit(); COMMIT", $kind);
	my $key = $node->sql("SELECT key FROM (SELECT * FROM outbox.record_0 UNION ALL SELECT * FROM outbox.record_1 UNION ALL SELECT * FROM outbox.record_2) r WHERE msgid = '$msgid'", $kind);
	$key{"$kind $msgid"} = $key =~ tr/-//dr;
	return $msgid;
}

# Returns true if the id is found to be a duplicate. It must never be new, whatever the store does.
sub is_duplicate
{
	my ($msgid) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid', 'sales'); ROLLBACK", $kind) eq 'f';
}

sub arrives
{
	my ($msgid, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { is_in_store($msgid) } $name;
	ok(is_duplicate($msgid), '... and is a duplicate');
	eventually { $node->propagated($kind) eq 'all' } '... which is noted';
	return;
}

# Kills a process, so that all processes restart; waits for another dispatcher.
sub kill_and_wait
{
	my ($pid) = @_;
	my $before = $node->dispatcher($kind);

	kill 'KILL', $pid // $before;
	return wait_until { grep { $_ != $before } $node->dispatchers($kind) };
}

foreach (sort keys %text)
{
	($kind, $n) = ($_, 0);
	note "the store is a $kind";
	$store = $kind eq 'redis' ? $redis_store : $server;
	$proxy = Proxy->new($store);
	my $url = $kind eq 'redis' ? $proxy->url : $server->store_url('shard', $proxy);
	$node->sql("CREATE DATABASE $kind");
	$node->sql("CREATE EXTENSION outbox; INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('sales', '$url')", $kind);
	my $msgid = process();
	arrives($msgid, 'an id arrives');

	# The id is published and not yet added.
	$proxy->hold($text{$kind});
	$msgid = process();
	eventually { $proxy->held >= 1 } 'the network holds an id back';
	eventually { $redis->count($kind) == $n } '... whose message is in Redis';
	ok(!is_in_store($msgid) && has_record($msgid), '... it has its record, and is not in the store');
	ok(is_duplicate($msgid), '... and is a duplicate');
	isnt($node->propagated($kind), 'all', '... that it was propagated is not noted');
	my $holding = $proxy->opened;
	$proxy->pass;
	ok(kill_and_wait(), 'the dispatcher is killed');
	ok(is_duplicate($msgid), '... it still is a duplicate');
	arrives($msgid, 'its successor adds it');
	$proxy->release($_) foreach 1 .. $holding;
	arrives(process(), 'what was held back is delivered after all; the next id');

	# A session is killed, so that all processes restart.
	$proxy->hold($text{$kind});
	$msgid = process();
	eventually { $proxy->held >= 1 } 'an id is held back once more';
	$proxy->pass;
	my $session = $node->session($kind);
	ok(kill_and_wait($session->query('SELECT pg_backend_pid()') =~ /(\d+)/), '... and a session is killed');
	eval { $session->quit };
	ok(is_duplicate($msgid), '... it is a duplicate');
	arrives($msgid, '... and arrives');

	# The id is added, and the answer is lost.
	my $harmed = $proxy->harmed;
	$proxy->lose_answer($text{$kind});
	$msgid = process();
	eventually { $proxy->harmed > $harmed } 'the answer is lost';
	eventually { is_in_store($msgid) } '... the id is in the store';
	isnt($node->propagated($kind), 'all', '... but that is not noted');
	ok(is_duplicate($msgid), '... it is a duplicate');
	ok(kill_and_wait(), 'the dispatcher is killed');
	$proxy->pass;
	arrives($msgid, 'its successor adds it once more');

	# Half of the packet arrives.
	$proxy->cut($text{$kind});
	$msgid = process();
	eventually { $proxy->harmed > $harmed + 1 } 'the connection is cut in the middle';
	ok(is_duplicate($msgid), '... it is a duplicate');
	$proxy->pass;
	arrives($msgid, '... and arrives');

	# The store is killed.
	$proxy->hold($text{$kind});
	$msgid = process();
	eventually { $proxy->held >= 1 } 'an id is held back once more';
	if ($kind eq 'redis') { $store->kill9; }
	else { $store->stop('immediate'); }
	$proxy->pass;
	eventually { $redis->count($kind) == $n } 'the store is down: messages are sent';
	ok(is_duplicate($msgid), '... what has a record is a duplicate without it');
	like($node->sql_error("SELECT outbox_begin('new', 'sales')", $kind), qr/^(08006|57P03)/, '... but not without a record');
	isnt($node->propagated($kind), 'all', '... and the id is not yet there');
	ok(kill_and_wait(), 'the dispatcher is killed');
	$store->start;
	arrives($msgid, 'the store is back: the id');
	is($redis->count($kind), $n, 'no message was sent twice');
}

# A Redis that comes back without its newest ids gets them again.
$kind = 'redis';
$n = 100;
my $kept = process();
arrives($kept, 'an id that will be kept');
$redis_store->stop;
$redis_store->save_data;
$redis_store->start;
my @lost = map { process() } 1 .. 3;
arrives($_, 'an id that will be lost') foreach @lost;
my $log = $node->log_position;
$redis_store->kill9;
$redis_store->restore_data;
$redis_store->start;
my $later = process();
arrives($_, 'the store lost it: it') foreach @lost, $later;
eventually { $node->log_since($log) =~ /deduplication store "redis:.*" has lost ids; adding again/ } 'the log says so';

# The store is emptied while the connection stays open, and there is nothing to add.
$log = $node->log_position;
$redis_store->command('FLUSHALL');
arrives($_, 'the store was emptied: an id') foreach $kept, @lost, $later;
eventually { $node->log_since($log) =~ /has lost ids/ } 'the log says so';
$redis_store->command('FLUSHALL');
my $next = process();
arrives($_, 'emptied right before the next id: one') foreach $next, @lost;

# Two endpoints name one Redis by two URLs. What it loses of the ids that came by one of them is
# missed, though ids of later messages that came by the other one are still there.
$node->sql("SELECT outbox_create_endpoint('parts', dedup_store => '" . $redis_store->url . "')", $kind);
arrives(process(), 'an id by one URL');
my $other = process('parts');
eventually { is_in_store($other) } '... and one by another';
$proxy->cut('WATERMARK');
my $late = process();
$other = process('parts');
eventually { is_in_store($other) } 'only one of the URLs can be used: its ids arrive';
ok(!is_in_store($late), '... but not those before them');
$redis_store->stop;
$redis_store->save_data;
$redis_store->start;
$proxy->pass;
arrives($late, 'the other one can be used: its id');
$redis_store->kill9;
$redis_store->restore_data;
$redis_store->start;
ok(is_in_store($other), 'Redis goes back to the time between');
arrives($late, '... and the id that it lost');

# Another PostgreSQL takes the place of a store. What came into that one last need not be in a
# copy of it that was made before, and is still in the log.
($kind, $n) = ('postgresql', 200);
$msgid = process();
arrives($msgid, 'an id');
$server->sql('CREATE DATABASE second');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'second');
$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $server->store_url('shard') =~ s{/postgres\?}{/second?}r ]}'", $kind);
eventually { $server->sql("SELECT outbox.store_contains('" . $key{"$kind $msgid"} . "')", 'second') eq 't' } '... comes into the store that takes the place of its own';
eventually { $node->propagated($kind) eq 'all' } '... which is noted';

# So it is if that one is not there yet, and nothing else is done until the next dispatcher is.
$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $server->store_url('shard') =~ s{/postgres\?}{/third?}r ]}'", $kind);
eventually { $node->propagated($kind) ne 'all' } 'a store that is not there yet takes its place: that it lacks ids is noted';
ok(kill_and_wait(), '... and the dispatcher is killed');
$server->sql('CREATE DATABASE third');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'third');
eventually { $server->sql("SELECT outbox.store_contains('" . $key{"$kind $msgid"} . "')", 'third') eq 't' } '... the id comes into it';
eventually { $node->propagated($kind) eq 'all' } '... which is noted';

# The same while Redis is away and a message is not sent.
$redis->stop;
$node->sql(q{SELECT outbox_enqueue('d', 'unsent')}, $kind);
my $newest = q{SELECT propagated FROM (SELECT * FROM outbox.window_0 UNION ALL SELECT * FROM outbox.window_1 UNION ALL
	SELECT * FROM outbox.window_2 UNION ALL SELECT * FROM outbox.window_3) w ORDER BY number DESC LIMIT 1};
my $noted = $node->sql($newest, $kind);
$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $server->store_url('shard') =~ s{/postgres\?}{/fourth?}r ]}'", $kind);
eventually { $node->sql($newest, $kind) < $noted } 'Redis is away, and a message is not sent: that a store lacks ids is noted';
ok(kill_and_wait(), '... and the dispatcher is killed');
$server->sql('CREATE DATABASE fourth');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'fourth');
$redis->start;
eventually { $server->sql("SELECT outbox.store_contains('" . $key{"$kind $msgid"} . "')", 'fourth') eq 't' } '... the id comes into it';
eventually { $node->propagated($kind) eq 'all' } '... which is noted';
eventually { ($redis->bodies('d'))[-1] eq 'unsent' } '... and the message is sent';

done_testing();
