# The commands of docs/deduplication.md, docs/from-nservicebus.md and docs/testing.md work
# as written: SQL returns what the pages show, the consumer in Python makes one invoice for
# each order whatever dies, and ids of an older outbox stay known.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use Page;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;
use Text::ParseWords;

my $root = dirname(__FILE__) . '/..';
my @names = ('docs/deduplication.md', 'docs/from-nservicebus.md', 'docs/testing.md');
my %page = map { $_ => read_page("$root/$_") } @names;
my $redis = Redis->new;
my $store = Redis->new(tcp => 1);

# With a store, nothing expires before this time has passed.
my $node = Outbox->create('main', redis => $redis, conf => "outbox.replay_window = '1s'");

#
# docs/deduplication.md
#
my $program = PostgreSQL::Test::Utils::tempdir() . '/invoicing.py';

# Runs a block.
sub follow
{
	my ($language, $text) = @_;

	$node->wait_until_sent;
	$text =~ s/127\.0\.0\.1:6379/'127.0.0.1:' . $store->port/e;
	if ($language eq 'sql') { type_into_psql($node, $text); }
	elsif ($language eq 'python') { PostgreSQL::Test::Utils::append_to_file($program, $text); }
	elsif ($language eq 'sh')
	{
		foreach my $command (split /\n/, $text)
		{
			my ($client, @words) = shellwords($command);
			is($client, 'redis-cli', "a command for redis-cli: $command");
			# Another database of Redis, which the outbox was told to use.
			unlike(($words[0] eq '-n' ? $store : $redis)->cli(@words), qr/^[A-Z]{2,} (?!\d)/, '... it takes it');
		}
	}
	else { fail("a block of \"$language\" is followed"); }
	return;
}

# Check whether an endpoint takes a message for a duplicate.
sub is_duplicate
{
	my ($msgid, $endpoint) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid', '$endpoint'); ROLLBACK") eq 'f';
}

follow(@$_) foreach blocks($page{'docs/testing.md'});
is($store->cli('-n', 15, 'XLEN', 'invoices'), 0, 'the test database has sent, and was cleaned up');
$node->sql('DROP DATABASE app_test');

follow(@$_) foreach blocks($page{'docs/deduplication.md'});
is($redis->count('invoices'), 1, 'what the page did by hand is in its stream');
is($node->sql(q{SELECT string_agg(id, ' ') FROM processed}), 'invoice-1', '... and in the table by hand');
$node->sql(q{INSERT INTO inbox (ref, done, done_at) VALUES ('order-16', true, now())});
ok(is_duplicate('order-16', 'shop'), 'a row of one\'s own makes a duplicate');
$node->sql(q{DELETE FROM inbox WHERE ref = 'order-16'});
ok(!is_duplicate('order-16', 'shop'), '... without it the message is new');
$node->sql(q{BEGIN; SELECT outbox_begin('sale-1', 'sales'), outbox_commit(); COMMIT});
eventually { $store->cli('-n', 1, 'KEYS', 'outbox:dedup:*') =~ /^outbox:dedup:/m } 'the endpoint with a store has it remember its ids';

# The consumer. Here it is taken for dead after a moment, and not after a minute.
SKIP:
{
	my $python = python() or skip 'no python3 with psycopg and redis', 10;
	my $text = read_page($program);
	ok($text =~ s/^(ABANDONED = )60_000\b/${1}1000/m, 'a consumer is given up after some time');
	unlink $program;
	PostgreSQL::Test::Utils::append_to_file($program, $text);

	my $start = sub {
		my ($name) = @_;
		return IPC::Run::start([ $python, $program, $node->connstr('postgres'), $redis->url, $name ], '<', \undef);
	};

	# One consumer is killed within its work, in which a lock holds it up.
	my $holder = $node->session;
	$holder->query_safe('BEGIN; LOCK TABLE invoices IN SHARE MODE');
	my @poison = ('no JSON', '5', '{"order": 1}', '{"order": [1], "amount": 1}', '{"order": 1, "amount": {"EUR": 1}}', "\xff\xfe");
	$node->sql(join '; ', map { 'SELECT outbox_enqueue(\'orders\', \'\x' . unpack('H*', $_) . '\'::bytea)' } @poison);
	$node->sql(q{SELECT outbox_enqueue('orders', jsonb_build_object('order', i, 'amount', i), message_id => 'order-' || i) FROM generate_series(2, 300) i});
	my $victim = $start->('victim');
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity
		WHERE query LIKE 'INSERT INTO invoices%' AND wait_event_type = 'Lock'}), 'a consumer handles a message');
	$victim->signal('KILL');
	eval { $victim->finish };
	$holder->query_safe('COMMIT');
	$holder->quit;

	# Redis has lost its newest writes, and they are sent again: new entries, the same ids.
	$node->wait_until_sent;
	foreach my $entry (($redis->entries('orders'))[ -50 .. -1 ])
	{
		$redis->command('XADD', 'orders', '*', map { $_ => $entry->{$_} } 'id', 'time', 'body');
	}
	my @consumers = map { $start->($_) } 'one', 'two';
	eventually
	{
		my ($group) = map { {@$_} } @{ $redis->command('XINFO', 'GROUPS', 'orders') };
		$group->{pending} == 0 && $group->{lag} == 0
	}
	'one is killed, two others read and acknowledge everything';
	is_exactly_once([ $redis->bodies('orders:dead') ], \@poison, 'what no consumer can handle is put aside');
	foreach my $consumer (@consumers)
	{
		$consumer->signal('KILL');
		eval { $consumer->finish };
	}
	my $all = [ 1 .. 300 ];
	is_exactly_once([ split /\n/, $node->sql('SELECT order_id FROM invoices') ], $all, 'there is one invoice for each order');
	is($node->sql('SELECT sum(amount) FROM invoices'), 40 + 300 * 301 / 2 - 1, '... with its amount');
	$node->wait_until_sent;
	is_exactly_once([ map { /(\d+)/ } $redis->bodies('invoices') ], $all, '... and one message');
	is($node->sql(q{SELECT duplicates >= 51 FROM outbox.endpoints WHERE name = 'invoicing'}), 't', '... the duplicates are counted');
}

#
# docs/from-nservicebus.md: two endpoints with tables of an older outbox.
#
foreach my $endpoint ('Billing', 'Shipping')
{
	$node->sql(<<"END");
CREATE TABLE "${endpoint}OutboxData" ("MessageId" varchar(200) PRIMARY KEY, "Dispatched" boolean NOT NULL DEFAULT false,
	"DispatchedAt" timestamp, "PersistenceVersion" varchar(23), "Operations" jsonb NOT NULL);
CREATE INDEX ON "${endpoint}OutboxData" ("DispatchedAt" ASC NULLS LAST);
CREATE INDEX ON "${endpoint}OutboxData" ("Dispatched");
INSERT INTO "${endpoint}OutboxData" SELECT 'old-' || i, true, now() AT TIME ZONE 'UTC' - i * interval '1 day', '9', '[]' FROM generate_series(1, 20) i;
END
}
$node->sql(<<'END');
CREATE TABLE "OutboxRecord" ("Id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, "MessageId" varchar(255) NOT NULL UNIQUE,
	"Dispatched" boolean NOT NULL, "DispatchedAt" timestamp, "TransportOperations" text);
INSERT INTO "OutboxRecord" ("MessageId", "Dispatched") VALUES ('Returns/old-1', true), ('Returns/a/b', true), ('Refunds/old-2', true), ('old-3', true);
END
follow(@$_) foreach blocks($page{'docs/from-nservicebus.md'});
ok(is_duplicate($_, 'Returns'), "of a table of several endpoints one knows its own: $_") foreach 'old-1', 'a/b', 'old-3';
ok(!is_duplicate($_, 'Returns'), "... and not those of others: $_") foreach 'old-2', 'Refunds/old-2', 'Returns/old-1';
foreach my $endpoint ('Billing', 'Shipping')
{
	ok(is_duplicate("old-$_", $endpoint), "$endpoint knows what was processed before: old-$_") foreach 1, 13;
	ok(!is_duplicate('new-1', $endpoint), '... and nothing else');
	$node->sql("BEGIN; SELECT outbox_begin('new-1', '$endpoint'), outbox_enqueue('d', '$endpoint'), outbox_commit(); COMMIT");
	is($node->sql("SELECT outbox_wait('new-1', '$endpoint', '3 min')"), 't', '... it processes new ones');
	ok(is_duplicate('new-1', $endpoint), '... once');
}
is($node->sql(q{SELECT "Dispatched", "DispatchedAt" > now() AT TIME ZONE 'UTC' - interval '1 hour', "Operations" FROM "BillingOutboxData" WHERE "MessageId" = 'new-1'}),
	't|t|[]', 'the table that was kept has its new id, marked');
# A round of its own may have been faster.
$node->sql('SELECT outbox_cleanup()');
is($node->sql('SELECT min("DispatchedAt") > now() AT TIME ZONE \'UTC\' - interval \'14 days\' FROM "BillingOutboxData"'), 't', 'and loses those that are too old');
my ($copy) = grep { /OutboxData/ } map { $_->[1] =~ s/Shipping/Billing/gr } grep { $_->[1] =~ /^DO/ } blocks($page{'docs/from-nservicebus.md'});
$node->sql("BEGIN; SELECT outbox_alter_endpoint('Billing', reset => '{record_table}');\n$copy; COMMIT; DROP TABLE \"BillingOutboxData\"");
ok(is_duplicate($_, 'Billing'), "the endpoint goes on to our own tables, and knows $_") foreach 'old-1', 'old-13', 'new-1';
ok(!is_duplicate('old-20', 'Billing'), '... but not what had expired');

done_testing();
