# The guides of docs/adopting.md: an outbox made by hand, one that Debezium reads, and one of
# NServiceBus are cut over while the load goes on. Each step is typed in from the page.
# Nothing is lost, nothing is sent or processed twice, and the order stays.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use Page;
use Redis;
use Test::More;

my $page = read_page(dirname(__FILE__) . '/../docs/adopting.md');
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, init => { allows_streaming => 'logical' }, conf => 'wal_level = logical');
my $clients = 4;

# The SQL of a section: of a guide, its steps.
sub steps
{
	return map { $_->[1] } grep { $_->[0] eq 'sql' } blocks(section($page, shift));
}

# Does a step that may not get its lock in time.
sub try_step
{
	my ($step, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually { $node->psql('postgres', $step, on_error_stop => 1) == 0 } $name;
}

# Starts sessions that insert at a steady rate, and now and then roll back.
sub start_load
{
	my ($insert) = @_;
	return $node->start_load(
		scripts => [ $insert, "BEGIN;\n${insert}ROLLBACK;\n" ],
		clients => $clients,
		rate => 200);
}

# The streams of the clients, by the number of the sale that each message is about.
sub sales_in
{
	my ($prefix) = @_;
	return map { [ map { /"sold": (\d+)/ } $redis->bodies("$prefix$_") ] } 0 .. $clients - 1;
}

sub count_in
{
	my ($prefix) = @_;
	my $count = 0;
	$count += $redis->count("$prefix$_") foreach 0 .. $clients - 1;
	return $count;
}

# Waits until so many more messages are in the streams; meanwhile the old way goes on.
sub wait_for_more
{
	my ($prefix, $old_way, $name) = @_;
	my $before = count_in($prefix);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually { $old_way->(); count_in($prefix) > $before + 100 } $name;
}

# Checks that each sale was sent once, by each client in its order.
sub is_complete
{
	my ($prefix, $sold) = @_;
	my @streams = sales_in($prefix);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is_exactly_once([ map { @$_ } @streams ], $sold, 'each sale was sent once');
	is_deeply([ map { [ sort { $a <=> $b } @$_ ] } @streams ], \@streams, '... in order');
	return;
}

#
# What the page shows first
#
type_into_psql($node, $_) foreach map { steps($_) } '## An outbox table that you have', '## Changes of a table';
$node->wait_until_sent;
my ($event) = $redis->entries('user-events');
is_deeply([ @$event{ 'id', 'body' }, $event->{headers} ], [ 1, '{"user": 1}', { type => 'UserCreated' } ], 'a row of an outbox table is sent');
my ($shown) = map { $_->[1] =~ s/\s+//gr } grep { $_->[0] eq 'json' } blocks($page);
is(($redis->bodies('stock-changes'))[1], $shown, 'a change looks as it is shown');

SKIP:
{
	skip 'no virtual columns before PostgreSQL 18', 1 if $node->pg_version < 18;
	$node->sql(<<'END');
CREATE TABLE twice (n integer, twice integer GENERATED ALWAYS AS (n * 2) VIRTUAL);
CREATE TRIGGER forward AFTER INSERT ON twice FOR EACH ROW EXECUTE FUNCTION outbox_forward('dest=''twice''', 'body=twice');
SELECT outbox_capture('twice', 'twice');
INSERT INTO twice VALUES (21);
END
	$node->wait_until_sent;
	like($redis->sequence('twice'), qr/^\{.*"after":\{"n":21\}\} 42$/, 'a virtual column is computed by an expression, and not captured');
}

# A session remembers what triggers do, until another one changes that.
my $session = $node->session;
$session->query_safe('UPDATE stock SET pieces = 5');
$node->sql(q{SELECT outbox_capture('stock', 'pieces', columns => '{pieces}')});
$session->query_safe('UPDATE stock SET pieces = 4');
$node->sql(q{SELECT outbox_capture('stock', 'stock-changes')});
$session->query_safe('UPDATE stock SET pieces = 3');
$session->quit;
$node->wait_until_sent;
is_deeply([ map { /"after":(.*)\}/ } map { $redis->bodies($_) } 'stock-changes', 'pieces' ],
	[ map({ qq({"item":1,"pieces":$_,"remark":null}) } 10, 9, 5, 3), '{"pieces":4}' ], 'what a trigger does is changed for all sessions');

#
# An outbox made by hand: a relay takes rows out and sends them.
#
my $guide = '## From an outbox made by hand';
$node->sql((map { $_->[1] } grep { $_->[0] eq 'text' } blocks(section($page, $guide)))[0]);
$node->sql('CREATE TABLE sold (id bigserial PRIMARY KEY)');
my ($pause, $forward, $resume) = steps($guide);
my $relay = sub {
	foreach my $row (split /\n/, $node->sql('WITH m AS (DELETE FROM messages RETURNING *) SELECT id, topic, payload FROM m ORDER BY id'))
	{
		my ($id, $topic, $payload) = split /\|/, $row;
		$redis->command('XADD', $topic, '*', id => $id, body => $payload);
	}
};
my $load = start_load(<<'END');
WITH s AS (INSERT INTO sold DEFAULT VALUES RETURNING id)
INSERT INTO messages (topic, payload) SELECT 'hand' || :client_id, jsonb_build_object('sold', id) FROM s;
END
wait_for_more('hand', $relay, 'the relay sends');
type_into_psql($node, $pause);
try_step($forward, 'the table is made to send');
eventually { $relay->(); $node->sql('SELECT count(*) FROM messages') eq '0' } 'the relay has sent what it had';
eventually { $node->sql('SELECT count(*) > 100 FROM outbox.pending') eq 't' } 'the outbox holds the new messages';
type_into_psql($node, $resume);
wait_for_more('hand', sub { }, 'the outbox sends');
$load->stop;
$node->wait_until_sent;
is_complete('hand', [ split /\n/, $node->sql('SELECT id FROM sold') ]);
is($node->sql('SELECT count(*) FROM messages'), '0', 'no row is left');

#
# Debezium: a reader of its slot sends what the event router would.
#
$node->sql(<<'END');
TRUNCATE sold RESTART IDENTITY;
CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
CREATE PUBLICATION dbz_publication FOR TABLE outboxevent;
SELECT pg_create_logical_replication_slot('debezium', 'pgoutput');
END
($pause, $forward, $resume) = steps('## From Debezium');
my $connector = sub {
	my $sent = 0;
	foreach my $change (split /\n/, $node->sql(<<'END'))
SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('debezium', NULL, NULL, 'proto_version', '1', 'publication_names', 'dbz_publication')
END
	{
		# An insert: its table, "N", the number of columns, and each as "t" and its text.
		my $data = pack 'H*', $change;
		next unless $data =~ s/^I.{4}N.{2}//s;
		my ($id, $type, $key, undef, $payload) = unpack '(x N/a)*', $data;
		$redis->command('XADD', "outbox.event.$type", '*', id => $id, body => $payload, key => $key);
		$sent++;
	}
	return $sent;
};
$load = start_load(<<'END');
WITH s AS (INSERT INTO sold DEFAULT VALUES RETURNING id)
INSERT INTO outboxevent SELECT gen_random_uuid(), 'client' || :client_id, id, 'Sold', jsonb_build_object('sold', id) FROM s;
END
wait_for_more('outbox.event.client', $connector, 'the connector sends');
type_into_psql($node, $pause);
try_step($forward, 'the table is moved');
my $moved = $node->sql('SELECT pg_current_wal_lsn()');
eventually { $connector->(); $node->sql("SELECT confirmed_flush_lsn >= '$moved' FROM pg_replication_slots") eq 't' } 'the connector has read what was committed before';
eventually { $node->sql('SELECT count(*) > 100 FROM outbox.pending') eq 't' } 'the outbox holds the new messages';
is($connector->(), 0, 'the connector has nothing more to read');
type_into_psql($node, $resume);
wait_for_more('outbox.event.client', $connector, 'the outbox sends');
$load->stop;
$node->wait_until_sent;
is($connector->(), 0, 'the connector has read nothing of that');
is_complete('outbox.event.client', [ split /\n/, $node->sql('SELECT id FROM sold') ]);
is_exactly_once([ map { $_->{id} } map { $redis->entries("outbox.event.client$_") } 0 .. $clients - 1 ],
	[ split /\n/, $node->sql('SELECT id FROM outboxevent') ], '... with the id of its row');
$node->sql(q{SELECT pg_drop_replication_slot('debezium')});

#
# NServiceBus: its sender goes on to send to a queue, and its receiver reads both.
#
$node->sql(<<'END');
CREATE TABLE "SalesOutboxData" ("MessageId" varchar(200) PRIMARY KEY, "Dispatched" boolean NOT NULL DEFAULT false, "DispatchedAt" timestamp,
	"PersistenceVersion" varchar(23), "Operations" jsonb NOT NULL);
CREATE TABLE billed (id text);
CREATE SEQUENCE sales;
END
my ($endpoint, $send) = steps('## From NServiceBus');
my @queue;
my $last = '0-0';

# What NServiceBus does after the commit of a handler: it sends, and marks that it has.
sub dispatch
{
	push @queue, split /\n/, $node->sql(<<'END');
WITH done AS (
	UPDATE "SalesOutboxData" o SET "Dispatched" = true, "DispatchedAt" = now(), "Operations" = '[]'
	FROM (SELECT "MessageId", "Operations" FROM "SalesOutboxData" WHERE NOT "Dispatched" FOR UPDATE) was
	WHERE o."MessageId" = was."MessageId" RETURNING was."Operations")
SELECT operation ->> 'MessageId' FROM done, jsonb_array_elements("Operations") operation
END
	return;
}

# The handler of the receiver, each message in a transaction of its own.
sub receive
{
	$node->sql(join '', map { <<"END" } @_) if @_;
DO \$\$ BEGIN
	IF outbox_begin('$_', 'Billing') THEN
		INSERT INTO billed VALUES ('$_');
		PERFORM outbox_commit();
	END IF;
END \$\$;
END
	return scalar @_;
}

sub receive_from_queue
{
	dispatch();
	return receive(splice @queue);
}

sub receive_from_stream
{
	my @entries = @{ $redis->command('XRANGE', 'Billing', "($last", '+') };
	$last = $entries[-1][0] if @entries;
	return receive(map { my %field = @{ $_->[1] }; $field{id} } @entries);
}

type_into_psql($node, $endpoint);
my $insert = <<'END';
WITH n AS (SELECT nextval('sales') AS n)
INSERT INTO "SalesOutboxData" ("MessageId", "Operations") SELECT 'order-' || n, jsonb_build_array(jsonb_build_object(
	'MessageId', 'sale-' || n, 'Headers', '{"NServiceBus.EnclosedMessageTypes": "Shop.Sold"}'::jsonb,
	'Options', '{"Destination": "Billing"}'::jsonb, 'Body', encode(convert_to('{"sold": ' || n || '}', 'UTF8'), 'base64'))) FROM n;
END
$load = start_load($insert);
my $received = 0;
eventually { ($received += receive_from_queue()) > 100 } 'the receiver reads its queue';
try_step($send, 'the table sends, too');
dispatch();
$received = 0;
eventually { receive_from_queue(); ($received += receive_from_stream()) > 100 } 'the receiver reads both';
$received = 0;
eventually { dispatch(); ($received += receive_from_stream()) > 100 } 'the receiver reads the stream only';
$load->stop;
$node->wait_until_sent;
receive_from_stream();
my @billed = split /\n/, $node->sql('SELECT id FROM billed');
is_exactly_once(\@billed, [ split /\n/, $node->sql(q{SELECT replace("MessageId", 'order', 'sale') FROM "SalesOutboxData"}) ], 'each sale was billed once');
cmp_ok(receive_from_queue(), '>', 0, 'what was left in the queue');
is($node->sql('SELECT count(*) FROM billed'), scalar @billed, '... are duplicates');
is((($redis->entries('Billing'))[0])->{headers}{'NServiceBus.EnclosedMessageTypes'}, 'Shop.Sold', 'headers are those of the operation');
like((($redis->entries('Billing'))[0])->{body}, qr/^\{"sold": \d+\}$/, '... and so is the body');

#
# A dump has the triggers, and what it restores is not sent again.
#
$node->sql('CREATE DATABASE copy');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ], 'the database is dumped');
$node->command_ok([ 'psql', '--quiet', '--no-psqlrc', '--set', 'ON_ERROR_STOP=1', '--output', '/dev/null', '--file', $dump, $node->connstr('copy') ], '... and restored');
$node->wait_until_sent('copy');
is(count_in('outbox.event.client'), $node->sql('SELECT count(*) FROM outboxevent', 'copy'), 'rows that were restored are not sent');
$node->sql(q{INSERT INTO outboxevent VALUES (gen_random_uuid(), 'restored', 1, 'Sold'); UPDATE stock SET pieces = 8}, 'copy');
eventually { $redis->count('outbox.event.restored') == 1 && $redis->count('stock-changes') == 5 } '... new ones are';

done_testing();
