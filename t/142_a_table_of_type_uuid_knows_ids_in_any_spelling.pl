# An endpoint that is given a custom record table of type uuid still knows the ids that it had
# before in the tables of the extension or in a store, however they were spelled.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'\n");
my @ids = ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', 'c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
my $later = 'D0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11';

sub handle
{
	my ($msgid, $endpoint) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid', '$endpoint') AS new \\gset\nSELECT outbox_commit() AS n \\gset\n\\echo :new\nCOMMIT;");
}

# Statements that create the table of an endpoint.
sub table
{
	my ($endpoint) = @_;
	return "CREATE TABLE $endpoint (message_id uuid PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz);
		CREATE INDEX ON $endpoint (dispatched_at);";
}

#
# In the tables of the extension.
#
foreach my $mode ('pessimistic', 'optimistic')
{
	$node->sql("SELECT outbox_create_endpoint('$mode', concurrency => '$mode')");
	is(handle($_, $mode), 't', "$mode: $_ is processed without a table") foreach @ids;
	$node->sql("BEGIN; SELECT outbox_begin('$later', '$mode'), outbox_enqueue('stream', 'x', deliver_at => now() + interval '1 hour'), outbox_commit(); COMMIT");
	$node->sql(table($mode) . "SELECT outbox_alter_endpoint('$mode', record_table => '$mode')");
	is(handle($_, $mode), 'f', '... and with one it is a duplicate') foreach @ids;
	is($node->sql("SELECT count(*) FROM $mode"), '0', '... that is not written once more');
	is($node->sql("SELECT outbox_wait('$ids[0]', '$mode', '3 min')"), 't', '... that outbox_wait() knows');
	is($node->sql("SELECT outbox_wait('$later', '$mode', '1 s')"), 'f', '... and its messages');
	like($node->sql_error("SELECT outbox_forget('$later', '$mode')"), qr/^55000: messages of "$later" are not yet sent/, '... which is not forgotten before these are sent, for they would mark the next record of that id');
	eventually { ($node->psql('postgres', "SELECT outbox_forget('$ids[0]', '$mode')"))[1] eq 't' } '... and outbox_forget()';
	is(handle($ids[0], $mode) . handle($ids[0], $mode) . handle(lc $ids[0], $mode), 'tff', '... so that it is processed once more, in any spelling');
}

# What it waits for is what the record caused that it has found.
$node->sql(q{SELECT outbox_create_endpoint('two')});
$node->sql('SELECT outbox_pause()');
$node->sql("BEGIN; SELECT outbox_begin('$_', 'two'), outbox_enqueue('stream', 'x'), outbox_commit(); COMMIT") foreach $ids[0], lc $ids[0];
$node->sql(table('two') . q{SELECT outbox_alter_endpoint('two', record_table => 'two')});
is($node->sql("SELECT outbox_wait('$_', 'two', '100 ms')"), 'f', "outbox_wait() of $_ waits for its messages") foreach $ids[0], lc $ids[0];
$node->sql('SELECT outbox_resume()');
is($node->sql("SELECT outbox_wait('$_', 'two', '3 min')"), 't', '... until they are sent') foreach $ids[0], lc $ids[0];

#
# In a store, where a database without such a table has it from.
#
my $url = $store->url;
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '$url')");
is(handle($ids[0], 'stored'), 't', 'with a store it is processed');
eventually { $store->cli('KEYS', 'outbox:dedup:*') =~ /outbox/ } '... and comes into the store';
$node->sql('CREATE DATABASE other');
$node->sql('CREATE EXTENSION outbox;' . table('stored') . "SELECT outbox_create_endpoint('stored', dedup_store => '$url', record_table => 'stored')", 'other');
my $begin = "BEGIN; SELECT outbox_begin('$ids[0]', 'stored')";
is($node->sql($begin, 'other'), 'f', 'another database finds it there, though its table spells it in another way');
is($node->sql("SELECT outbox_forget('$ids[0]', 'stored')", 'other'), 't', '... and can forget it');
is($node->sql($begin, 'other'), 't', '... so that it is new');

done_testing();
