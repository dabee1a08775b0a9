# A publication of all tables sends the tables of the extension to a subscriber that has
# the extension, too. The subscriber ignores them: both outboxes go on, each with its own
# messages, records and rings; only settings are replicated.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

# Segments are compacted and emptied all the time.
my $conf = "$Compaction::small_segments\n" . <<'END';
outbox.replay_window = '1s'
outbox.retry_max_delay = '500ms'
outbox.max_attempts = 1000
max_worker_processes = 40
max_logical_replication_workers = 16
max_sync_workers_per_subscription = 8
max_replication_slots = 100
max_wal_senders = 30
wal_retrieve_retry_interval = '100ms'
END
my ($redis, $own_redis) = (Redis->new, Redis->new);
my $publisher = Outbox->create('publisher', redis => $redis, init => { allows_streaming => 'logical' }, conf => "${conf}wal_level = logical");
my $subscriber = Outbox->create('subscriber', redis => $own_redis, conf => $conf);
my %sent;

# Handles messages, each with a row and an outgoing message.
sub handle
{
	my ($node, $count) = @_;
	my $name = $node->name;

	foreach (1 .. $count)
	{
		my $n = ++$sent{$name};
		$node->sql(<<END);
BEGIN;
SELECT outbox_begin('$name $n');
INSERT INTO orders VALUES ('$name $n');
SELECT outbox_enqueue('d', '$name $n', message_id => '$name $n');
SELECT outbox_commit();
COMMIT;
END
	}
	return;
}

sub has_orders_of_publisher
{
	return $subscriber->sql(q{SELECT count(*) FROM orders WHERE name LIKE 'publisher %'}) == $sent{publisher};
}

# Checks that a Redis has the messages of one server only, once and in order.
sub has_its_own
{
	my ($server, $node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $name = $node->name;

	ok($node->wait_until_sent, "the $name has sent all");
	eventually { $server->count('d') >= $sent{$name} } '... which is there';
	is(join(', ', $server->bodies('d')), join(', ', map { "$name $_" } 1 .. $sent{$name}), '... its own, once, in order');
	return;
}

# A ring is intact if it has one current segment and rotates.
sub rings { return $_[0]->sql(q{SELECT ring, count(*), count(*) FILTER (WHERE state = 'current') FROM outbox.ring GROUP BY 1 ORDER BY 1}); }
sub generation { return $_[0]->sql('SELECT max(generation) FROM outbox.ring'); }

foreach my $node ($publisher, $subscriber)
{
	$node->sql('CREATE TABLE orders (name text PRIMARY KEY)');
	is($node->process('both'), 't', 'both process a message');
	handle($node, 20);
}
prepare($publisher);
$subscriber->sql('CREATE TABLE claimed (upto bigint)');
$redis->refuse('refused');
$publisher->sql(q{SELECT outbox_enqueue('refused', 'x'), outbox_enqueue('later', 'x', deliver_at => now() + interval '1 day')});
my $instance = $subscriber->sql('SELECT id FROM outbox.instance');

# The tables are copied first, then changes are sent.
my $log = $subscriber->log_position;
$publisher->sql('CREATE PUBLICATION everything FOR ALL TABLES');
$subscriber->sql("CREATE SUBSCRIPTION mine CONNECTION '@{[ $publisher->connstr ]} dbname=postgres' PUBLICATION everything");
handle($subscriber, 5);
ok($subscriber->poll_query_until('postgres', q{SELECT count(*) > 50 AND bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel}), 'all tables are copied');
eventually { has_orders_of_publisher() } '... with those of the user';

# The record of a message that is forgotten and processed again is deleted, in the first
# segment of both.
is($publisher->sql(q{SELECT outbox_forget('both')}) . $publisher->process('both'), 'tt', 'the publisher forgets the message, and processes it again');
handle($publisher, 1);
eventually { has_orders_of_publisher() } '... the subscriber has what came later';
is($subscriber->process('both'), 'f', '... and still knows the message');

# The rings of the publisher rotate, messages are refused and tried again.
fill($publisher, 8);
handle($publisher, 20);
handle($subscriber, 20);
$redis->accept('refused');
eventually { $redis->count('refused') == 1 } 'what was refused on the publisher arrives';
ok($publisher->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM outbox.ring WHERE ring = 'history' AND keys > 0)}), 'records of the publisher are compacted');
$publisher->set('outbox.retention' => '3s');
ok($publisher->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM outbox.compacted)}), '... and expire');
handle($publisher, 5);
handle($subscriber, 5);
eventually { has_orders_of_publisher() } 'the rows of the user come to the subscriber';

has_its_own($redis, $publisher);
has_its_own($own_redis, $subscriber);
is($own_redis->count($_), 0, "the subscriber sends nothing to \"$_\"") foreach 'refused', 'later';
is($subscriber->status('deferred, scheduled, dead'), '0|0|0', '... nor has it anything to send');
ok(is_new($subscriber, 'publisher 1'), 'a message that the publisher processed is new to the subscriber');
ok(!is_new($subscriber, 'subscriber 1'), '... but not its own');
is($subscriber->sql('SELECT id FROM outbox.instance'), $instance, 'it has its name');
is(rings($_), "history|24|0\nlog|4|1\nrecord|12|1", "the rings of the @{[ $_->name ]} are intact") foreach $publisher, $subscriber;
foreach my $node ($publisher, $subscriber)
{
	eventually { $node->status('problem IS NULL') eq 't' } '... nothing is wrong';
}

unlike($_->log_since(0), qr/ERROR:|PANIC:|TRAP:/, "the @{[ $_->name ]} has no error in its log") foreach $publisher, $subscriber;

# An apply worker locks the row of a segment, and then the table, before a trigger drops
# its changes. The dispatcher, which empties that segment, does it the other way round.
sub segment_in { return $subscriber->sql("SELECT min(segment) FROM outbox.ring WHERE ring = 'log' AND state = '$_[0]'"); }
my ($holder, $applier) = map { $subscriber->session } 1 .. 2;
my $segment = segment_in('current');
$holder->query_safe("BEGIN; LOCK TABLE outbox.log_$segment IN ACCESS SHARE MODE");
eventually { handle($subscriber, 1); $subscriber->sql("SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = $segment") eq 'retired' } 'a segment waits to be emptied';
$applier->query_safe("BEGIN; SELECT FROM outbox.ring WHERE ring = 'log' AND segment = $segment FOR UPDATE");
$holder->query_safe('COMMIT');
is($subscriber->sql('SELECT count(outbox_cleanup()) FROM generate_series(1, 3)'), 3, '... its row is locked, and the dispatcher goes on');
$applier->query_safe("LOCK TABLE outbox.log_$segment IN ROW EXCLUSIVE MODE; COMMIT");
eventually { $subscriber->sql("SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = $segment") ne 'retired' } '... it is emptied later';
$_->quit foreach $holder, $applier;

# Settings are replicated like the rows of any table.
$publisher->sql(q{SELECT outbox_set_destination('alias', 'renamed')});
ok($subscriber->poll_query_until('postgres', q{SELECT stream = 'renamed' FROM outbox.destination WHERE dest = 'alias'}), 'settings of destinations come along');
$subscriber->sql(q{SELECT outbox_enqueue('alias', 'x')});
eventually { $own_redis->count('renamed') == 1 } '... and take effect';

# All rings go on rotating, also after a restart.
my $was = generation($subscriber);
$_->restart foreach $publisher, $subscriber;
handle($_, 10) foreach $publisher, $subscriber;
eventually { has_orders_of_publisher() } 'replication goes on after a restart';
has_its_own($redis, $publisher);
has_its_own($own_redis, $subscriber);
eventually { generation($subscriber) > $was } 'the rings of the subscriber rotate';

# Two rows of one name collide, as documented (18 says "index" and not "constraint").
$_->sql(q{SELECT outbox_create_endpoint('both')}) foreach $subscriber, $publisher;
eventually { $subscriber->log_since($log) =~ /unique (constraint|index) "endpoint_pkey"/ } 'an endpoint that both create stops replication';
handle($subscriber, 1);
has_its_own($own_redis, $subscriber);
$subscriber->sql(q{SELECT outbox_drop_endpoint('both')});
eventually { $subscriber->sql(q{SELECT count(*) FROM outbox.endpoint WHERE name = 'both'}) == 1 } '... until it is dropped there';
handle($publisher, 1);
eventually { has_orders_of_publisher() } '... and replication goes on';

done_testing();
