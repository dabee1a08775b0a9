# While a hash slot of a Redis Cluster cannot be written to, or the master that has it is
# away, messages for the other slots are sent; when it can be written to again, those for it
# follow, once and in order.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(fails_after => 3000);
my $node = Outbox->create('main', redis => $cluster, conf => <<'END');
restart_after_crash = on
outbox.command_timeout = '2s'
outbox.connect_timeout = '2s'
outbox.replay_window = '3s'
outbox.retry_delay = '50ms'
outbox.retry_max_delay = '200ms'
outbox.max_attempts = 10000
END
my @streams = map { "events:$_" } 1 .. 12;
my $ledger = Ledger->new($node, $cluster, @streams, map { "new:$_" } 1 .. 40);

# In a database of another encoding names are converted.
$node->sql(q{CREATE DATABASE japanese ENCODING 'EUC_JP' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'});
$node->sql('CREATE EXTENSION outbox', 'japanese');
my @leases = map { 'outbox:lease:' . $node->sql('SELECT id FROM outbox.instance', $_) } 'postgres', 'japanese';

# A master that has neither lease, without which nothing is sent, and which streams are elsewhere.
my %has_lease = map { $cluster->index_of($_) => 1 } @leases;
my ($blocked) = grep { !$has_lease{$_} } 0 .. 2;
my $replica = $cluster->replica_of($blocked);
my %is_there = map { $_ => $cluster->index_of($_) != $blocked } $ledger->streams;

# Messages for the streams of other masters are sent.
sub others_go_on
{
	my ($name, @but) = @_;
	my %before;
	my @others = grep { my $stream = $_; $is_there{$stream} && !grep { $_ eq $stream } @but } @streams;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$before{$_} = $cluster->count($_) foreach @others;
	$ledger->post(@streams) foreach 1 .. 3;
	eventually { !grep { $cluster->count($_) < $before{$_} + 3 } @others } "$name: messages for other slots are sent";
	return;
}

# One more stream that was never written to, of those that are there, or not.
sub new_stream
{
	my ($there) = @_;
	return (grep { /^new/ && ($is_there{$_} xor !$there) } $ledger->streams)[0];
}

# Whether the replica may take the place of its master. A master that is back counts as
# failed for a while, in which it would be replaced.
sub let_fail_over
{
	my ($may) = @_;
	$cluster->wait_until_ok if $may eq 'yes';
	$cluster->node($replica)->command('CONFIG', 'SET', 'cluster-replica-no-failover', $may eq 'yes' ? 'no' : 'yes');
	return;
}

# A stream that begins like that, and is on another master, or on this one.
sub stream_elsewhere { my ($name) = @_; return (grep { $cluster->index_of($_) != $blocked } map { "$name:$_" } 1 .. 40)[0]; }
sub stream_here { my ($name) = @_; return (grep { $cluster->index_of($_) == $blocked } map { "$name:$_" } 1 .. 40)[0]; }

# How many rows of the log were read, as was reported; and as the dispatcher has reported after this call.
sub rows_reported { return $node->sql(q{SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE schemaname = 'outbox' AND relname LIKE 'log%'}); }

sub rows_read
{
	my $now = rows_reported();
	wait_until { rows_reported() > $now };
	return rows_reported();
}

sub problem { return $node->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'slots'}); }

# Redis is told of partitions once more with each connection; while a slot is blocked that waits.
$node->sql("SELECT outbox_set_destination('orders', partitions => 2)");
$ledger->post(@streams);
$ledger->agrees('messages arrive on all nodes');
eventually { $node->sql(q{SELECT partitions FROM outbox.mapping WHERE dest = 'orders'}) eq '2' } 'partitions are in use';

# One destination has refused a message, one was paused.
my ($refusing, $paused) = map { $ledger->add($_) } stream_elsewhere('refusing'), stream_here('paused');
my ($later, $later_here) = (stream_elsewhere('later'), stream_here('later'));
$cluster->refuse($refusing);
$node->sql("SELECT outbox_pause('$paused')");
$ledger->post($refusing, $paused);
eventually { $node->status('deferred') == 2 } 'two messages are deferred';

# Also in the other database, where one name cannot be converted.
my ($refusing_text, $here_text) = (stream_elsewhere('refusing text'), stream_here('text'));
$node->sql(q{INSERT INTO outbox.destination (dest, stream) VALUES ('inconvertible', E'\xF4\xFE')}, 'japanese');
$cluster->refuse($refusing_text);
$node->sql("SELECT outbox_set_destination('other', maxlen => 1)", 'japanese');
$node->sql("SELECT outbox_enqueue(d, 'body') FROM unnest(ARRAY['$refusing_text', '$refusing_text', '$here_text', 'inconvertible']) d", 'japanese');
eventually { $cluster->count($here_text) == 1 && $node->sql('SELECT deferred FROM outbox.status', 'japanese') == 3 } '... and three of another database';
my $dispatcher = $node->dispatcher('japanese');

# A master is killed, and its replica does not take its place.
let_fail_over('no');
my $load = $ledger->start_load(50, @streams);
$cluster->node($blocked)->kill9;
others_go_on('a master was killed');
my ($known, $unknown) = (new_stream(1), new_stream(0));
$ledger->post($known, $unknown);
eventually { $cluster->count($known) == 1 } 'a slot is used for the first time beside it';
my $other = stream_elsewhere('other');
$node->sql("SELECT outbox_set_destination('renamed', stream => '$other')");
$node->sql("SELECT outbox_enqueue('renamed', 'body')");
eventually { $cluster->count($other) == 1 } 'a destination gets a stream of another name beside it';

# What is scheduled, and what was deferred before.
$node->sql("SELECT outbox_enqueue(s, 'body', deliver_at => clock_timestamp() + '200 ms') FROM unnest(ARRAY['$later', '$later_here']) s");
$ledger->post($refusing, $paused);
$node->sql("SELECT outbox_resume('$paused')");
$cluster->accept($refusing);
eventually { $cluster->count($later) == 1 } 'a scheduled message is sent beside it';
eventually { $cluster->count($refusing) == 2 } 'messages that were refused are sent beside it';
$node->sql("SELECT outbox_enqueue('$here_text', 'body')", 'japanese');
eventually { $node->sql(q{SELECT redis_state || redis_error ~ '^up.' FROM outbox.status}, 'japanese') eq 't' } 'the other database knows of blocked slots, too';
$cluster->accept($refusing_text);
eventually { $cluster->count($refusing_text) == 2 } 'what was refused is sent from a database of another encoding';
is($node->dispatcher('japanese'), $dispatcher, '... by the same dispatcher');
like(problem(), qr/^\d+ hash slots of the Redis Cluster cannot be written to, so messages for them wait: .*127\.0\.0\.1:\d+/, 'which node it is shows')
  if eventually { problem() ne '' } 'the problem shows';
is($node->status('redis_state'), 'up', 'Redis can be used');
cmp_ok($node->status('pending'), '>', 0, 'what waits is pending');

# outbox_wait() waits for what a message has caused, and not for other slots.
sub process
{
	my ($msgid, @streams) = @_;
	my $enqueue = join ' ', map { "SELECT outbox_enqueue('$_', 'body');" } @streams;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid'); $enqueue SELECT outbox_commit(); COMMIT");
	return;
}
process('beside', $other, $later);
process('here', $other, $later_here);
is($node->sql(q{SELECT outbox_wait('beside', timeout => '3 min')}), 't', 'outbox_wait() returns when all of a message is sent beside it');
is($node->sql(q{SELECT outbox_wait('here', timeout => '100 ms')}), 'f', '... and waits for what is not');

# Of what was sent since then nothing is read again when the links break. The dispatcher must
# know that it was sent, and have reported that it has read it.
my $bulk = stream_elsewhere('bulk');
my $before = rows_read();
$node->sql("SELECT count(outbox_enqueue('$bulk', i::text)) FROM generate_series(1, 10000) i");
process('behind', $bulk);
is($node->sql(q{SELECT outbox_wait('behind', timeout => '3 min')}), 't', 'many messages are sent beside it');
eventually { rows_reported() >= $before + 10000 } '... which is reported';
others_go_on('before the links break');
$before = rows_reported();
$cluster->node_of($bulk)->command('CLIENT', 'KILL', 'TYPE', 'normal');
others_go_on('after the links broke');
my $read = rows_read() - $before;
cmp_ok($read, '<', 10000, "... and these are not read again ($read rows)");

$node->sql('SELECT outbox_cleanup()');
others_go_on('after a cleanup');
$node->kill_dispatcher;
wait_until { $node->answers };
others_go_on('after the dispatcher was killed');
$node->restart;
others_go_on('after a restart of the server');
$load->stop;
$cluster->node($blocked)->start;
let_fail_over('yes');
eventually { problem() eq '' } 'the problem ends with its cause';
$ledger->agrees('the master is back');
is($cluster->count($later_here), 2, 'what was scheduled meanwhile has arrived');
is($node->sql(q{SELECT outbox_wait('here', timeout => '3 min')}), 't', 'outbox_wait() returns for what has waited');

# A master hangs, and goes on: there is a batch in its socket.
let_fail_over('no');
$load = $ledger->start_load(50, @streams);
$cluster->node($blocked)->pause;
others_go_on('a master hangs');
others_go_on('... also when that is known');
$cluster->node($blocked)->resume;
let_fail_over('yes');
others_go_on('it goes on');
$load->stop;
$ledger->agrees('it went on');

# A reshard is abandoned when one of two keys has moved; a stream of the slot is new.
my $torn = (grep { $is_there{$_} } @streams)[0];
my $from = $cluster->index_of($torn);
my ($to) = grep { $_ != $from } 0 .. 2;
my $beside = $ledger->add("{$torn}:beside");
%is_there = map { $_ => 1 } @streams;
$cluster->move_slot($cluster->slot_of($torn), $from, $to, stop_after => 1);
$load = $ledger->start_load(50, @streams);
$ledger->post($beside);
others_go_on('a slot is neither here nor there', $torn);
eventually { problem() =~ /hash slot @{[ $cluster->slot_of($torn) ]}\b.*redis-cli --cluster fix/ } 'the problem says which slot, and what to do';
$node->kill_dispatcher;
wait_until { $node->answers };
others_go_on('after the dispatcher was killed', $torn);
$cluster->fix;
$load->stop;
$ledger->agrees('the cluster was fixed');

# Another node dies then: the cluster is the same, but the slots are elsewhere.
$load = $ledger->start_load(50, @streams);
$cluster->wait_for_replica($blocked);
$cluster->node($blocked)->kill9;
$cluster->wait_until_served_by($replica);
$load->stop;
$ledger->agrees('a replica takes the place of a master');
is($node->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'loss'}), 0, 'nothing is reported as lost');
done_testing();
