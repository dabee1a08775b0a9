# outbox_forget() forgets ids in segments, compacted ones, those in stores, and those in
# custom record tables: the next claim succeeds, once. That holds across compaction,
# expiry, dumps and crashes.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "$Compaction::small_segments\noutbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'\n");
prepare($node);

sub forget
{
	my ($msgid, @rest) = @_;
	return $node->sql("SELECT outbox_forget('$msgid')", @rest);
}

sub is_compacted
{
	my ($msgid) = @_;
	return $node->sql("SELECT NOT EXISTS (SELECT FROM outbox.records WHERE msgid = '$msgid')") eq 't';
}

# Executes statements in a pipeline, of which one fails. Returns the error.
sub pipeline
{
	my $script = join('', map { "$_\n" } '\startpipeline', (map { "$_;" } @_), '\endpipeline');
	my $load = $node->start_load(scripts => [$script], clients => 1, transactions => 1, args => [ '--protocol', 'extended' ]);

	$load->finish;
	return $load->{error};
}

#
# An id that is compacted.
#
$node->process($_) foreach 'a', 'b', 'c', 'd';
forget('c');
compact($node);
ok(is_compacted('a'), 'ids are compacted');
is(forget('a'), 't', 'a compacted id can be forgotten');
is(forget('a'), 'f', '... once');
is($node->sql(q{SELECT outbox_wait('a') IS NULL}), 't', '... and is not known then');
ok(is_new($node, 'c'), 'what was forgotten before it was compacted stays so');
ok(!is_new($node, $_), "$_ is known") foreach 'b', 'd';

# While it is forgotten, it may be compacted once more, with others.
compact($node) for 1 .. 2;
ok(is_new($node, 'a'), 'a merge brings nothing back');
ok(!is_new($node, 'b'), '... nor does it lose the others');
is($node->process('a'), 't', 'it is processed again');
is($node->process('a'), 'f', '... and known');
is($node->sql(q{SELECT outbox_wait('a', timeout => '3 min')}), 't', '... to outbox_wait(), too');
compact($node);
ok(!is_new($node, 'a'), '... also when that is compacted');
is(forget('a'), 't', 'it may be forgotten again, with two keys compacted');
ok(is_new($node, 'a'), '... both of them');
is($node->process('a'), 't', '... and processed');

#
# A crash; a prepared transaction.
#
forget('b');
$node->sql(q{BEGIN; SELECT outbox_forget('d'); PREPARE TRANSACTION 'p'});
$node->stop('immediate');
$node->start;
ok(is_new($node, 'b'), 'what is forgotten stays so after a crash');
ok(!is_new($node, 'd'), 'a prepared transaction has forgotten nothing yet');
$node->sql(q{COMMIT PREPARED 'p'});
ok(is_new($node, 'd'), '... until COMMIT PREPARED');

#
# A dump, restored by one job and by several.
#
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->process($_) foreach 'e', 'f';
forget('e');
$node->command_ok([ 'pg_dump', '-Fd', '-f', $dump, $node->connstr('postgres') ], 'the database is dumped');
foreach my $jobs (1, 3)
{
	my $copy = "copy_$jobs";
	$node->sql("CREATE DATABASE $copy");
	$node->command_ok([ 'pg_restore', '-j', $jobs, '-d', $node->connstr($copy), $dump ], "... and restored by $jobs");
	is(is_new($node, $_, 'default', $copy), !!1, "$_ is forgotten there, too") foreach 'b', 'd', 'e';
	is(is_new($node, $_, 'default', $copy), !!'', "$_ is known") foreach 'a', 'f', 'm1';
	is($node->process('b', $copy) . $node->process('b', $copy) . $node->process('e', $copy) . $node->process('e', $copy), "t\nf\nt\nf" =~ s/\n//gr, '... and what was forgotten is processed once');
}

#
# A tombstone is removed when its id is in no segment any more, and not before.
#
my $tombstones = $node->sql('SELECT count(*) FROM outbox.forgotten');
cmp_ok($tombstones, '>', 0, 'there are tombstones');
$node->sql('SELECT outbox_cleanup()');
is($node->sql('SELECT count(*) FROM outbox.forgotten'), $tombstones, '... that outlive a cleanup');
$node->set('outbox.retention' => '1s');
eventually { $node->sql('SELECT count(*) FROM outbox.forgotten') == 0 } '... until their ids expire';
$node->set('outbox.retention' => '1h');
is($node->process('b') . $node->process('b'), 'tf', 'an id may come again after that');

#
# Stores. An id is removed there at once.
#
my $redis_store = Redis->new;
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
my %url = (redis => $redis_store->url, postgres => $server->store_url('shard'));
foreach my $kind (sort keys %url)
{
	$node->sql("SELECT outbox_create_endpoint('$kind', dedup_store => '$url{$kind}')");
	my $handle = sub { $node->sql("BEGIN; SELECT outbox_begin('s', '$kind') AS new \\gset\nSELECT outbox_commit() AS n \\gset\n\\echo :new\nCOMMIT;") };
	my $forget = sub { $node->sql("SELECT outbox_forget('s', '$kind')") };

	is($handle->(), 't', "$kind: it is processed");
	like($node->sql_error("BEGIN; SELECT outbox_forget('s', '$kind')"), qr/cannot be forgotten in a transaction block/, '... and forgotten in no transaction block');
	ok(wait_until { ($node->psql('postgres', "SELECT outbox_forget('s', '$kind')"))[0] == 0 }, '... when it is in the store');
	is($forget->(), 'f', '... then neither store nor record knows it');
	is($handle->(), 't', '... it is processed again');
	is($handle->(), 'f', '... once');

	# What a pipeline of a driver holds is one transaction.
	eventually { $node->sql("SELECT outbox_wait('s', '$kind')") eq 't' && $node->propagated eq 'all' } '... its id is in the store again';
	like($node->sql_error("DO \$\$ BEGIN PERFORM outbox_forget('s', '$kind'); EXCEPTION WHEN division_by_zero THEN NULL; END \$\$"), qr/^25001: /, '... and forgotten in no block that catches errors');
	like(pipeline('SELECT 1', "SELECT outbox_forget('s', '$kind')"), qr/cannot be forgotten in a transaction block/, '... nor in a pipeline behind another statement');
	like(pipeline("SELECT outbox_forget('s', '$kind')", 'SELECT 1/0'), qr/division by zero/, '... but before one that fails');
	is($handle->(), 't', '... and that is not rolled back: it is processed again');
}

#
# A custom record table. A receipt that is not propagated yet would mark the row of the
# next delivery, whose messages may not be sent by then.
#
$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('own', record_table => 'inbox', retention => '1 hour');
END
my $handle = sub { $node->sql("BEGIN; SELECT outbox_begin('u', 'own') AS new \\gset\nSELECT outbox_enqueue('u', 'x') AS id \\gset\nSELECT outbox_commit() AS n \\gset\n\\echo :new\nCOMMIT;") };
$redis->stop;
is($handle->(), 't', 'with Redis away a message is processed, whose record is in a table');
like($node->sql_error(q{SELECT outbox_forget('u', 'own')}), qr/^55000: .*not yet marked/, '... it is not forgotten before that is marked');
is($node->sql('SELECT count(*), count(*) FILTER (WHERE dispatched) FROM inbox'), '1|0', '... and the record is there');
$redis->start;
is($node->sql(q{SELECT outbox_wait('u', 'own', '3 min')}), 't', 'Redis is back: it is marked');
is($node->sql(q{SELECT outbox_forget('u', 'own')}), 't', '... and can be forgotten');
is($handle->(), 't', '... and processed again');

done_testing();
