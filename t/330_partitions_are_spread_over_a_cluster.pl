# The partitions of a destination are spread over the masters of a Redis Cluster. A change of
# their number keeps the order of each key, consumers know it before the first message that
# is spread so, and what a master loses of it they are told again.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(fails_after => 3000);
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.redis_url = '@{[ $cluster->url =~ s{//}{//outbox:sw0rdfish@}r ]}'");

# No more rights than docs/reference.md asks for.
$_->command('ACL', 'SETUSER', 'outbox', 'on', '>sw0rdfish', qw(~outbox:* ~orders ~orders:* +get +set +del +type +xadd +eval +evalsha +script|load +info
		+cluster|info +cluster|slots +cluster|nodes +hget +hgetall +hset +hdel +time +xinfo +hmget)) foreach $cluster->nodes;
my @streams = ('orders', map { "orders:$_" } 0 .. 7);
my $key = 'outbox:partitions:orders';

sub layout { return { @{ $cluster->node_of($key)->command('HGETALL', $key) } }; }
sub in_windows { return $node->sql('SELECT max(messages) FROM (' . join(' UNION ALL ', map { "SELECT messages FROM outbox.window_$_" } 0 .. 3) . ') w'); }
sub total { my $sum = 0; $sum += $cluster->count($_) foreach @streams; return $sum; }

# Changes the number of partitions, and waits until consumers can read it.
sub set_partitions
{
	my ($n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql("SELECT outbox_set_destination('orders', " . ($n ? "partitions => $n)" : "reset => '{partitions}')"));
	eventually { (eval { layout()->{partitions} } // -1) == $n } "there are $n partitions";
	return;
}

$node->sql(<<'END');
CREATE SEQUENCE numbers;
CREATE FUNCTION work(lane int, messages int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(lane);
	FOR i IN 1..messages LOOP
		PERFORM outbox_enqueue('orders', nextval('numbers')::text, key => 'key ' || lane);
	END LOOP;
END $$;
END
my $load = $node->start_load(clients => 4, seconds => 300, rate => 50,
	scripts => ["\\set lane random(1, 8)\n\\set n random(1, 20)\nSELECT work(:lane, :n);\n"]);
foreach my $n (4, 8, 3, 0, 2)
{
	set_partitions($n);
	$node->sql(join '', map { "SELECT work($_, 1);" } 1 .. 8);    # each key in each layout
	my $had = total();
	eventually { total() > $had + 100 } '... and messages come';
}
$load->stop;
ok($node->wait_until_sent, 'all is sent');

my (%last, %newest, %nodes);
my ($seen, $overtaken, $early) = (0, 0, 0);
foreach my $stream (@streams)
{
	foreach my $entry (@{ $cluster->node_of($stream)->command('XRANGE', $stream, '-', '+') })
	{
		my %field = @{ $entry->[1] };
		my $last = \$last{"$stream $field{key}"};
		$overtaken++ if defined $$last and $$last > $field{body};
		$$last = $field{body};
		push @{ $newest{ $field{key} } }, [ $field{body}, split /-/, $entry->[0] ];
		$nodes{ $cluster->index_of($stream) } = 1;
		$seen++;
	}
}
foreach my $entries (values %newest)
{
	my $ms = 0;
	foreach my $entry (sort { $a->[0] <=> $b->[0] } @$entries)
	{
		$early++ if $entry->[1] < $ms;
		$ms = $entry->[1];
	}
}
is("$overtaken, $early", '0, 0', 'each key is in order, in each stream and across them');
is($seen, $node->sql('SELECT count(*) FROM (SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3) l'), '... and all are there, once');
is(scalar(keys %nodes), 3, '... on all masters');

# The layout names the ends of the streams before.
my @ends = map { $cluster->node_of("orders:$_")->command('XREVRANGE', "orders:$_", '+', '-', 'COUNT', 1)->[0][0] } 0, 1;
set_partitions(5);
my $layout = layout();
is("$layout->{'end:0'} $layout->{'end:1'} $layout->{former}", "@ends 2", 'the layout names the ends of the streams before');

# What was sent before another connection claimed the layout, or for another epoch, does nothing.
my $script = slurp_file(dirname(__FILE__) . '/../bgworker/connection/partition_layout.lua');
my ($by) = grep { /^by:/ } keys %$layout;
foreach my $late ([ 'somebody', $layout->{epoch} ], [ $layout->{$by}, $layout->{epoch} - 1 ])
{
	like(eval { $cluster->node_of($key)->command('EVAL', $script, 1, $key, $by, @$late, 'of:x:orders', 'orders', 9) } // $@,
		qr/FENCE another connection|EPOCH another database/, 'a late layout is refused');
}
is_deeply(layout(), $layout, '... and changes nothing');

# A change finds windows that were opened before it and are not sent yet, of which the table
# of mappings says that they go to the former partitions: consumers read these until the new layout.
my $before = in_windows();
$node->sql('SELECT outbox_pause()');
$node->sql("SELECT outbox_enqueue('orders', n::text, key => 'key ' || n) FROM generate_series(1000001, 1000200) n");
eventually { in_windows() == $before + 200 } 'messages are in a window while all is paused';
$node->sql("SELECT outbox_set_destination('orders', partitions => 2)");
$node->restart;
$node->sql('SELECT outbox_resume()');
eventually { layout()->{partitions} == 2 } 'the number changes';
$node->wait_until_sent;
$layout = layout();
@ends = map { $cluster->node_of("orders:$_")->command('XREVRANGE', "orders:$_", '+', '-', 'COUNT', 1)->[0][0] } 2 .. 4;
is("@ends", join(' ', map { $layout->{"end:$_"} } 2 .. 4), 'nothing comes to former partitions behind the ends that consumers were told');

# Its master fails over and loses it; nothing is sent meanwhile.
my $master = $cluster->index_of($key);
my $replica = $cluster->replica_of($master);
$cluster->wait_for_replica($master);
$cluster->cut_replica($replica);
set_partitions(6);
$layout = layout();
$cluster->node($master)->kill9;
$cluster->failover($replica, 'TAKEOVER');
eventually { my $now = eval { layout() } // {}; ($now->{partitions} // 0) == 6 && $now->{epoch} > $layout->{epoch} } 'a layout that is lost is told again';

# Somebody writes what no outbox does.
foreach my $epoch ('5e15', '999999999999998', '9' x 30)
{
	$cluster->node_of($key)->command('HSET', $key, 'epoch', $epoch);
	my $partitions = 7 + length $epoch;
	$node->sql("SELECT outbox_set_destination('orders', partitions => $partitions)");
	$node->sql(q{SELECT outbox_enqueue('orders', 'x', key => 'k')});
	eventually { $node->status('deferred') > 0 && $node->sql(q{SELECT last_error FROM outbox.destinations WHERE dest = 'orders'}) =~ /field epoch of \Q$key\E .*Delete that key/ } "the epoch $epoch is an error of its destination"
	  or diag $node->sql('SELECT * FROM outbox.destinations');
	$cluster->node_of($key)->command('DEL', $key);
	eventually { my $now = eval { layout() } // {}; ($now->{partitions} // 0) == $partitions && $now->{epoch} < 10**14 } '... until the key is gone, and written again';
	eventually { $node->status('deferred') == 0 } '... then its messages are sent';
}

# Another database had a clock that was ahead.
my $ahead = $cluster->node_of($key)->command('HINCRBY', $key, 'epoch', 1_000_000_000);
set_partitions(3);
cmp_ok(layout()->{epoch}, '>', $ahead, 'an epoch is greater than the one before, whatever the clock says');

done_testing();
