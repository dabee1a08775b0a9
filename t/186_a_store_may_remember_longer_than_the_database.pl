# A store remembers ids for longer than the database: those that have expired here are
# known there. A record that is still here counts for as long as the store should know it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, conf => <<'END');
outbox.retention = '1s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
outbox.command_timeout = '60s'
outbox.connect_timeout = '60s'
END
my $redis_store = Redis->new;
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'\noutbox.retention = '1h'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
my %url = (redis => $redis_store->url, postgresql => $server->store_url('shard'));
my $kind;

# The store forgets everything but its watermark.
sub lose_ids
{
	if ($kind eq 'redis')
	{
		$redis_store->command('DEL', $_) foreach grep { /^outbox:dedup:/ } @{ $redis_store->command('KEYS', 'outbox:dedup:*') };
		return;
	}
	my $all = $server->sql(q{SELECT string_agg(format('SELECT key FROM outbox.record_%s', segment), ' UNION ALL ') FROM outbox.ring WHERE ring = 'record'});
	$server->sql("SELECT outbox.store_remove(key) FROM ($all) r");
	return;
}

sub process
{
	my ($msgid) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid', 'sales'), outbox_commit(); COMMIT", $kind);
	return;
}

sub is_new
{
	my ($msgid) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid', 'sales'); ROLLBACK", $kind) eq 't';
}

sub nothing_is_here { return $node->sql('SELECT count(*) FROM outbox.records', $kind) == 0; }

foreach (sort keys %url)
{
	$kind = $_;
	note "the store is a $kind";
	$node->sql("CREATE DATABASE $kind");
	$node->sql("CREATE EXTENSION outbox; SELECT outbox_create_endpoint('sales', retention => '1 s', dedup_store => '$url{$kind}', store_retention => '1 h')", $kind);

	process('early');
	eventually { nothing_is_here() } 'a record expires by the retention';
	ok(!is_new('early'), '... the store still knows the id');
	if ($kind eq 'redis')
	{
		my ($ms) = map { $redis_store->command('PTTL', $_) } grep { /^outbox:dedup:/ } @{ $redis_store->command('KEYS', '*') };
		cmp_ok($ms, '>', 3_000_000, '... for as long as store_retention says');
	}
	lose_ids();
	ok(is_new('early'), '... and only the store did');

	# A handler that takes longer than the record is kept.
	my $long = $node->session($kind, on_error_stop => 0);
	is($long->query("\\set VERBOSITY verbose\nBEGIN; SELECT outbox_begin('long', 'sales')"), 't', 'a handler has begun');
	process('long');
	eventually { nothing_is_here() } '... meanwhile its message is processed by another, and expires here';
	$long->{stderr} = '';
	$long->query('SELECT outbox_commit()');
	like($long->{stderr}, qr/23505.*already been processed/, '... the store tells the first one');
	$long->query('ROLLBACK');
	is($long->query("BEGIN; SELECT outbox_begin('alone', 'sales')"), 't', 'another one has begun');
	$long->query('SELECT pg_sleep(1.5)');
	is($long->query('SELECT outbox_commit(); COMMIT'), '0', '... and may be older than the retention');

	$long->quit;

	# A record that is kept longer than its retention, because of others in the same segment.
	eventually { nothing_is_here() } 'that one expires, too';
	$node->sql("SELECT outbox_create_endpoint('patient', retention => '90 s')", $kind);
	process('kept');
	ok($node->poll_query_until($kind, "SELECT published_at < clock_timestamp() - interval '2 s' FROM outbox.ring JOIN outbox.records USING (segment) WHERE ring = 'record' AND msgid = 'kept'"),
		'a record is here longer than its retention');
	lose_ids();
	ok(!is_new('kept'), '... and counts, whatever the store has lost');
	$node->sql("SELECT outbox_drop_endpoint('patient')", $kind);
	eventually { nothing_is_here() } '... until it goes';
	ok(is_new('kept'), '... then the id is known nowhere');
}

# With a store, no record expires before outbox.replay_window is over.
$node->set('outbox.replay_window' => '2h');
is($node->sql(q{SELECT retention, store_retention FROM outbox.endpoints WHERE name = 'sales'}, 'redis'), '02:00:00|01:00:00', 'outbox.replay_window is the least retention');

done_testing();
