# outbox_set_destination(..., partitions => n): the messages of a key go to one of n streams,
# in order, and consumers can compute to which. A change of n takes effect where a window
# ends; before the first message that is spread so, consumers can read the layout in Redis.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.batch_size = 7\n");

# CRC-16/XMODEM.
sub crc16
{
	my $crc = 0;
	foreach my $byte (unpack 'C*', $_[0])
	{
		$crc ^= $byte << 8;
		$crc = $crc & 0x8000 ? ($crc << 1 ^ 0x1021) & 0xFFFF : $crc << 1 & 0xFFFF foreach 1 .. 8;
	}
	return $crc;
}

sub entries { return @{ $redis->command('XRANGE', $_[0], '-', '+') }; }
sub fields { my ($entry) = @_; return { @{ $entry->[1] } }; }
sub layout { return { @{ $redis->command('HGETALL', "outbox:partitions:$_[0]") } }; }
sub total { my $sum = 0; $sum += $redis->count($_) foreach 'orders', map { "orders:$_" } 0 .. 7; return $sum; }
sub set_partitions { $node->sql("SELECT outbox_set_destination('$_[0]', " . ($_[1] ? "partitions => $_[1])" : "reset => '{partitions}')")); return; }
sub newer { my ($left, $right) = map { [ split /-/ ] } @_; return ($left->[0] <=> $right->[0] || $left->[1] <=> $right->[1]) > 0; }

# Waits until consumers can read that the destination is spread over so many streams.
sub layout_becomes
{
	my ($dest, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { (layout($dest)->{partitions} // -1) == $n } "$dest has $n partitions";
	return;
}

# The hash is the one that Redis has for its slots. These vectors are in docs/reference.md.
my %vectors = ('123456789' => 0x31C3, 'a' => 0x7C87, 'order-17' => 0xC850, "\xc3\xa9t\xc3\xa9" => 0xA767);
is(crc16('123456789'), 0x31C3, 'the test knows the hash');
set_partitions('vectors', 4096);
$node->sql("SET client_encoding = utf8; SELECT outbox_enqueue('vectors', 'x', key => '$_')") foreach keys %vectors;
ok($node->wait_until_sent, 'messages with keys are sent');
foreach my $key (sort keys %vectors)
{
	my ($entry) = entries('vectors:' . $vectors{$key} % 4096);
	is($entry && fields($entry)->{key}, $key, "$key is in the partition of its hash, and a field of its entry");
}

# Without a key, the id of the message counts.
set_partitions('spread', 3);
$node->sql("SELECT outbox_enqueue('spread', i::text, message_id => 'm' || i) FROM generate_series(1, 60) i");
ok($node->wait_until_sent, 'messages without keys are sent');
my $misplaced = 0;
foreach my $partition (0 .. 2)
{
	my @there = map { fields($_) } entries("spread:$partition");
	ok(@there > 5, "partition $partition has some of them");
	$misplaced += grep { crc16($_->{id}) % 3 != $partition or exists $_->{key} } @there;
}
is($misplaced, 0, '... those whose ids have its hash, without a field for the key');

# The same with CloudEvents, in a stream of another name, by outbox_send, and trimmed.
$node->sql("SELECT outbox_set_destination('events', 'stream', 5, 'cloudevents', 2)");
layout_becomes('stream', 2);
my $place = crc16('k') % 2;
$node->sql(q{SELECT outbox_enqueue('events', 'x', '{"partitionkey": "other", "subject": "s"}', 'e1', key => 'k')});
ok($node->wait_until_sent, 'a CloudEvent with a key');
my $event = fields((entries("stream:$place"))[0]);
is("$event->{ce_id} $event->{ce_partitionkey} $event->{ce_subject}", 'e1 k s', '... has it as its partitionkey');
is(scalar(grep { $_ eq 'ce_partitionkey' } @{ (entries("stream:$place"))[0][1] }), 1, '... once');
my $sent = $node->sql("SELECT outbox_send('events', 'x', message_id => 'e2', key => 'k')");
is((entries("stream:$place"))[1][0], $sent, 'outbox_send chooses the same stream');
$node->sql("SELECT count(outbox_enqueue('events', 'x', key => 'k')) FROM generate_series(1, 400)");
ok($node->wait_until_sent, 'many of one key');
ok($redis->count("stream:$place") < 300, '... are trimmed');

# A destination begins with one stream; its partitions change while messages come.
$node->sql(<<'END');
CREATE SEQUENCE numbers;
CREATE FUNCTION work(lane int, messages int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(lane);
	FOR i IN 1..messages LOOP
		PERFORM outbox_enqueue('orders', nextval('numbers')::text, '{}', txid_current() || '.' || i, NULL, 'key ' || lane);
	END LOOP;
END $$;
END
my $load = $node->start_load(clients => 4, seconds => 300, rate => 100,
	scripts => ["\\set lane random(1, 8)\n\\set n random(1, 20)\nSELECT work(:lane, :n);\n"]);
eventually { $redis->count('orders') > 100 } 'messages come';
foreach my $n (4, 8, 3, 1, 0)
{
	set_partitions('orders', $n);
	layout_becomes('orders', $n);
	$node->sql(join '', map { "SELECT work($_, 1);" } 1 .. 8);    # each key in each layout
	my $had = total();
	eventually { total() > $had + 100 } '... and messages come';
}
# Several changes at once.
$node->sql("SELECT outbox_set_destination('orders', partitions => n) FROM unnest('{2,5,6}'::int[]) n");
set_partitions('orders', $_) foreach 7, 4;
layout_becomes('orders', 4);
$load->stop;
ok($node->wait_until_sent, 'all is sent');

# A consumer that reads the streams of a layout to their ends before it begins with the next
# one sees each key in order.
my @all = map { my $stream = $_; map { [ $_->[0], $stream, fields($_) ] } entries($stream) } 'orders', map { "orders:$_" } 0 .. 7;
is_exactly_once([ map { $_->[2]{id} } @all ], [ split /\n/, $node->sql("SELECT message_id FROM (SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3) l WHERE dest = 'orders'") ], 'each message is in one of the streams');
my (%last, %ms);
my ($overtaken, $early) = (0, 0);
foreach my $entry (sort { $a->[2]{body} <=> $b->[2]{body} } @all)
{
	my ($id, $stream, $key) = (@$entry[ 0, 1 ], $entry->[2]{key});
	$overtaken++ if exists $last{$key}{$stream} and newer($last{$key}{$stream}, $id);
	$last{$key}{$stream} = $id;
	my ($ms) = split /-/, $id;
	$early++ if $ms < ($ms{$key} // 0);
	$ms{$key} = $ms;
}
is("$overtaken, $early", '0, 0', 'each key is in order, in each stream and across them');
my %stream_of;    # of transactions
push @{ $stream_of{ (split /\./, $_->[2]{id})[0] } }, $_->[1] foreach @all;
is(scalar(grep { my %streams = map { $_ => 1 } @$_; keys %streams > 1 } values %stream_of), 0, 'no transaction is in two layouts');

# Another stream, in the middle of a window: consumers do not know yet how many partitions it has.
$node->sql("SELECT outbox_set_destination('moving', 'from', partitions => 8)");
layout_becomes('from', 8);
$node->sql("SELECT count(outbox_enqueue('moving', 'x', message_id => 'm' || i)) FROM generate_series(1, 15000) i");
eventually { $redis->count('from:0') > 20 } 'a large window is being sent';
$node->sql("SELECT outbox_set_destination('moving', 'to', partitions => 2)");
layout_becomes('to', 2);
$node->sql("SELECT outbox_enqueue('moving', 'x', message_id => 'next')");
ok($node->wait_until_sent, 'all of it is sent');
my %moved = map { my $stream = $_; $stream => $redis->count("$stream:0") + $redis->count("$stream:1") } 'from', 'to';
$moved{from} += $redis->count("from:$_") foreach 2 .. 7;
is_deeply(\%moved, { from => 15000, to => 1 }, '... to the stream that it began with, and what comes next to the other');

# What consumers read: the end of each stream of the layout before, and an epoch that increases.
my $layout = layout('orders');
my $epoch = $layout->{epoch};
my @ended = ('end', map { "end:$_" } grep { $redis->count("orders:$_") > 0 } 0 .. $layout->{former} - 1);
is_deeply([ sort grep { /^end/ } keys %$layout ], \@ended, 'the layout names the ends of the streams before') or diag(explain($layout));
set_partitions('ends', 2);
layout_becomes('ends', 2);
ok(layout('ends')->{epoch} >= $epoch, 'epochs are times');
$node->sql("SELECT outbox_enqueue('ends', i::text, message_id => 'm' || i) FROM generate_series(1, 20) i");
ok($node->wait_until_sent, 'both partitions have messages');
my @ends = map { (entries("ends:$_"))[-1][0] } 0, 1;
$epoch = layout('ends')->{epoch};
set_partitions('ends', 4);
layout_becomes('ends', 4);
$layout = layout('ends');
is("$layout->{'end:0'} $layout->{'end:1'} $layout->{former}", "@ends 2", 'the ends are those of the moment of the change');
ok($layout->{epoch} > $epoch, 'the epoch has increased');

# A Redis that has lost everything, and one that has lost the layout only.
$redis->command('FLUSHALL');
$node->sql("SELECT outbox_enqueue('ends', 'after')");
ok($node->wait_until_sent, 'an emptied Redis');
layout_becomes('ends', 4);
ok(layout('ends')->{epoch} > $layout->{epoch}, '... gets a newer epoch');
ok($redis->count('ends:0') + $redis->count('ends:1') + $redis->count('ends:2') + $redis->count('ends:3') > 0, '... before its messages');
$epoch = layout('ends')->{epoch};
$node->restart;
$node->sql("SELECT outbox_enqueue('ends', 'again')");
ok($node->wait_until_sent, 'a restart');
is(layout('ends')->{epoch}, $epoch, '... is no new epoch');

# Redis may refuse the layout of a destination: that stops this destination only, as if Redis refused its stream.
sub refuses
{
	my ($what, $dest, $error) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	set_partitions($dest, 2);
	$node->sql("SELECT outbox_enqueue('$dest', i::text) FROM generate_series(1, 20) i");
	my $had = total();
	$node->sql("SELECT outbox_enqueue('orders', 'beside')");
	eventually { total() > $had } "$what: other destinations are sent";
	eventually { $node->sql("SELECT deferred, last_error ~ '$error' FROM outbox.destinations WHERE dest = '$dest'") eq '20|t' } '... its messages wait';
	$node->restart;
	$node->sql("SELECT outbox_enqueue('orders', 'again')");
	eventually { total() > $had + 1 } '... also after a restart';
	is($node->sql('SELECT problem FROM outbox.status') =~ /Redis cannot be used/, '', '... which is no fault of Redis');
	return;
}

sub recovers
{
	my ($dest) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql("SELECT outbox_retry('$dest')");
	ok($node->wait_until_sent, '... and are sent when that is mended');
	is($redis->count("$dest:0") + $redis->count("$dest:1"), 20, '... to the partitions');
	is($redis->count($dest), 0, '... and nowhere else');
	return;
}
$redis->command('SET', 'outbox:partitions:a string', 'x');
refuses('a key of another type', 'a string', 'WRONGTYPE');
$redis->command('DEL', 'outbox:partitions:a string');
recovers('a string');
$redis->command('ACL', 'SETUSER', 'default', '-hset');
refuses('a command that is forbidden', 'forbidden', 'run th(is|e)');
$redis->command('ACL', 'SETUSER', 'default', '+hset');
recovers('forbidden');

# Another database that writes to the same streams.
$node->sql('CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION outbox; SELECT outbox_set_destination('ends', partitions => 6)");
layout_becomes('ends', 6);
ok(layout('ends')->{epoch} > $epoch, 'the layout of another database is a new epoch');
set_partitions('ends', 2);
eventually { layout('ends')->{former} == 6 } 'a change in one of two databases';
is(layout('ends')->{partitions}, 6, '... leaves to consumers the streams of both');

# outbox_send() that is under way when the number becomes smaller: its entry comes before
# the end that consumers are told of, though another call is always under way.
my $proxy = Proxy->new($redis);
my ($key) = grep { crc16($_) % 4 == 3 } 'a' .. 'z';
my ($other) = grep { crc16($_) % 4 == 0 } 'a' .. 'z';
my @senders = map { $node->session } 1 .. 2;
sub send_held
{
	my ($sender) = @_;
	my $held = $proxy->held;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$sender->query_until(qr/asked/, "\\echo asked\nSET outbox.redis_url = '" . $proxy->url . "'; SELECT outbox_send('sends', 'x', key => '$key');\n");
	eventually { $proxy->held == $held + 1 } 'outbox_send() is under way';
	return;
}
set_partitions('sends', 4);
layout_becomes('sends', 4);
$node->set('outbox.command_timeout' => '60s');
$proxy->hold('XADD');
send_held($senders[0]);
set_partitions('sends', 2);
$node->sql("SELECT outbox_enqueue('sends', 'y', key => '$other')");
eventually { $redis->count('sends:0') == 1 } '... messages do not wait for it';
send_held($senders[1]);
is(layout('sends')->{partitions}, 4, '... but the change does');
$node->sql(q{SELECT outbox_pause('paused'), outbox_enqueue('paused', 'z')});
eventually { $node->sql(q{SELECT deferred FROM outbox.destinations WHERE dest = 'paused'}) eq '1' } 'a setting of another destination is read';
$proxy->release($proxy->opened - 1);
like($senders[0]->query('SELECT 1'), qr/^(\d+-\d+)\n1$/, 'it ends');
layout_becomes('sends', 2);
is(layout('sends')->{'end:3'}, (entries('sends:3'))[-1][0], '... and its entry is the end of its partition');
$proxy->pass;
$proxy->release($proxy->opened);
$senders[1]->query('SELECT 1');
is($redis->count('sends:3') . ' ' . $redis->count('sends:1'), '1 1', '... while another call goes where messages go now');
$_->quit foreach @senders;

done_testing();
