# A Redis Cluster may be a deduplication store: its ids are spread over the masters, are found
# while their slots move, and what a master loses is added again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use RedisCluster;
use Test::More;

my $redis = Redis->new;
my $cluster = RedisCluster->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);
my @databases = qw(one two);
my $url = $cluster->url =~ s{//}{//store:sw0rdfish@}r;
my $n = 0;

# No more rights than docs/operations.md asks for.
$_->command('ACL', 'SETUSER', 'store', 'on', '>sw0rdfish', '~outbox:dedup:*', '~outbox:watermark:*',
	qw(+cluster|info +cluster|slots +asking +info +exists +get +set +eval +del)) foreach $cluster->nodes;

foreach my $database (@databases)
{
	$node->sql("CREATE DATABASE $database");
	$node->sql("CREATE EXTENSION outbox; SELECT outbox_create_endpoint('sales', dedup_store => '$url')", $database);
}

# Processes so many messages in the first database; returns their ids.
sub process
{
	my ($messages) = @_;
	my @ids = map { 'm' . ++$n } 1 .. $messages;
	$node->sql(join("\n", map { "BEGIN; SELECT outbox_begin('$_', 'sales'); SELECT outbox_enqueue('d', '$_'); SELECT outbox_commit(); COMMIT;" } @ids), 'one');
	return @ids;
}

# How many of these the second database takes for new; it has no record of them.
sub unknown
{
	my @ids = @_;
	return scalar grep { $_ eq 't' } split /\n/, $node->sql(join("\n", map { "BEGIN; SELECT outbox_begin('$_', 'sales'); ROLLBACK;" } @ids), 'two');
}

# Which masters have ids, and how many in all.
sub spread
{
	my @counts = map { $cluster->is_master($_) ? $cluster->node($_)->count_ids : 0 } $cluster->up;
	my $all = 0;
	$all += $_ foreach @counts;
	return scalar(grep { $_ } @counts) . " $all";
}

my @ids = process(60);
eventually { spread() eq '3 60' } 'the ids are spread over the masters';
is(unknown(@ids), 0, 'another database knows them');
is(unknown('new'), 1, '... and not others');
eventually { $node->status('problem IS NULL', 'one') eq 't' } 'nothing is wrong';

# A slot in which there are ids moves: first half of them, then the rest.
my ($key) = grep { /^outbox:dedup:\{/ } @{ $cluster->node(0)->command('KEYS', 'outbox:dedup:*') };
my $slot = $cluster->slot_of($key);
$cluster->move_slot($slot, 0, 1, stop_after => 2);
is(unknown(@ids), 0, 'ids are known while their slot moves');
is(unknown(map { "new$_" } 1 .. 40), 40, '... and new ones are new');
push @ids, process(40);
like($node->sql(q{SELECT outbox_wait('m100', 'sales', timeout => '3 min')}, 'one'), qr/^t$/, '... messages are sent');
$cluster->move_slot($slot, 0, 1);
eventually { spread() eq '3 100' } '... and all ids are in the store when it has moved';
is(unknown(@ids), 0, '... where they are known');

# A master dies, and its replica lacks the newest ids.
my $replica = $cluster->replica_of(1);
$cluster->wait_for_replica(1);
$cluster->cut_replica($replica);
my @late = process(60);
eventually { spread() eq '3 160' } 'ids come to a master whose replica gets nothing';
$cluster->node(1)->kill9;
$cluster->failover($replica, 'TAKEOVER');
eventually { spread() eq '3 160' } 'what it had acknowledged is added again';
is(unknown(@ids, @late), 0, '... so that it is known');
like($node->log_since(0), qr/has lost ids; adding again/, '... as the log says');

is($node->sql(q{SELECT outbox_forget('m1', 'sales')}, 'one'), 't', 'an id is forgotten');
is(unknown('m1'), 1, '... there, too');

done_testing();
