# Lets the dispatcher die at one point after the other while clients commit and roll back,
# one destination refuses now and then, another one gets more partitions or fewer, and both rings rotate; then compares what was
# committed with what is in Redis.

package DispatcherWalk;

use strict;
use warnings FATAL => 'all';

use KillPoints;
use Outbox;
use Redis;
use Test::More;
use Time::HiRes qw(time usleep);

# Transactions of all clients per second, and in one burst.
use constant { RATE => 150, BURST => 45, CLIENTS => 3 };

my $settings = <<'END';
outbox.batch_size = 3
outbox.retention = '4s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '20ms'
outbox.retry_delay = '20ms'
outbox.retry_max_delay = '100ms'
outbox.max_attempts = 1000000
END

# A message and its line in the ledger; a transaction with messages for all
# destinations, larger than a batch (of those for later some are due at once, and on a busy
# machine before they are read; others fill a batch by themselves, wherever it begins); a message that many claim, for half a
# second and then again when it may be compacted already, and one may: the loser
# gives up, as a client that gets 23505 would; many records, more than are compacted
# in one step.
my $functions = <<'END';
CREATE SEQUENCE numbers;
CREATE TABLE ledger (stream text, body text);
CREATE TABLE claimed (msgid text);
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION post(stream text, body text, deliver_at timestamptz DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
INSERT INTO ledger VALUES (stream, body);
SELECT outbox_enqueue(stream, body, deliver_at => deliver_at);
$$;
CREATE FUNCTION work(client int, step text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	name text := client || ' ' || nextval('numbers');
BEGIN
	PERFORM outbox_begin('m ' || name, 'tabled');
	PERFORM outbox_commit();
	PERFORM outbox_begin('m ' || name, 'stored');
	FOR k IN 1..3 LOOP
		PERFORM post('orders', name || ' ' || k || ' ' || step);
		PERFORM post('flaky', name || ' ' || k || ' ' || step);
		PERFORM post('events', name || ' ' || k || ' ' || step);
	END LOOP;
	INSERT INTO ledger VALUES ('keyed', name || ' 1 ' || step);
	PERFORM outbox_enqueue('keyed', name || ' 1 ' || step, key => client::text);
	PERFORM post('later', name || ' 1 ' || step, clock_timestamp() + '30 ms');
	IF client = 0 THEN
		PERFORM post('later', name || ' ' || k || ' ' || step, clock_timestamp() + '3 s') FROM generate_series(2, 6) k;
	END IF;
	PERFORM outbox_commit();
END;
$$;
CREATE FUNCTION claim(id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF outbox_begin(id, 'stored') THEN
		INSERT INTO claimed VALUES (id);
		PERFORM post('claims', id);
		PERFORM outbox_commit();
	END IF;
EXCEPTION WHEN unique_violation THEN
	NULL;
END;
$$;
CREATE FUNCTION claim_many(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN 1..17000 LOOP
		PERFORM outbox_begin(name || n);
		PERFORM outbox_commit();
	END LOOP;
END;
$$;
END

# Half of the transactions do not wait for their WAL.
my @scripts = (<<'END', <<'END', <<'END', <<'END');
BEGIN;
SELECT work(:client_id, 'STEP');
COMMIT;
END
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT work(:client_id, 'STEP');
COMMIT;
END
BEGIN;
SELECT work(:client_id, 'ghost STEP');
ROLLBACK;
END
\set again random(0, 1)
BEGIN;
SAVEPOINT s;
SELECT post('orders', 'ghost STEP');
ROLLBACK TO s;
SELECT claim(floor(extract(epoch FROM clock_timestamp()) * 2 - 3 * :again)::text);
COMMIT;
END

# Publishes to a Redis, or to the cluster that is given.
sub new
{
	my ($class, $redis) = @_;
	$redis //= Redis->new;
	my $node = create_with_kill_points('main', redis => $redis, conf => $settings);

	$node->sql($functions);
	$node->sql("INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('stored', '" . $redis->url . "')");
	$node->sql("SELECT outbox_create_endpoint('tabled', record_table => 'inbox')");
	return bless { node => $node, redis => $redis }, $class;
}

# Goes through all points in this manner, with a test for each.
sub walk
{
	my ($self, $manner) = @_;
	$self->die_at($_, $manner, 1) foreach grep { !/^(lane|cluster)_/ } kill_points('bgworker');    # of a cluster
	return;
}

# The same without those in what publishes, and those of compaction and of the ring of records, which know nothing of Redis.
sub walk_beside_publishing
{
	my ($self, $manner) = @_;
	my %publishing = map { $_ => 1 } kill_points('bgworker/lane', 'bgworker/connection', 'bgworker/publish');

	$self->die_at($_, $manner, 1) foreach grep { !$publishing{$_} && !/^(record_|history_|merge_|filter_|current_filter_)/ } kill_points('bgworker');
	return;
}

# The same for points that one dispatcher passes again and again: not at the first pass but
# later.
sub walk_later
{
	my ($self, $manner) = @_;
	$self->die_at($_, $manner, 4)
	  foreach grep { /^(batch|answer|return)_|^window_(?!read)/ } kill_points('bgworker');
	return;
}

sub die_at
{
	my ($self, $point, $manner, $pass) = @_;
	my $turn = $point =~ /^closing/ ? 3 : $point =~ /^merge/ ? 2 : 0;    # what brings it there
	my $live = $point =~ /^record_retired/ ? 'rest' : 'burst';

	# Quiet segments have their filters from the time when they were written, unless the
	# server was down. It must not die before it is down, so it is stopped first.
	$self->{node}->stop('immediate') if $point =~ /^filter_/;
	arm($self->{node}, $point, $manner, $pass);
	$self->{node}->start(fail_ok => 1) if $point =~ /^filter_/;
	ok(wait_until { $self->$live("$manner $point", $turn++); fired($self->{node}) },
		"$manner, pass $pass: $point")
	  or return;
	revive($self->{node}, $manner) or BAIL_OUT('the server is gone');
	return;
}

# Runs some transactions, until all have run or a process has died. What needs more than
# that gets it in later turns.
sub burst
{
	my ($self, $step, $turn) = @_;
	my $node = $self->{node};
	my $start = time;
	my $load;

	# A table at which a process ended is left alone for a minute, unless it is altered.
	$self->attempt('ALTER TABLE inbox SET (fillfactor = 100)') if $turn > 0;

	# A new dispatcher; many records; a pause, in which the window is closed.
	$turn %= 4;
	$self->attempt("ALTER DATABASE postgres SET outbox.poll_interval = '100ms'") if $turn == 1;
	$self->attempt("SELECT claim_many('$step ' || clock_timestamp())") if $turn == 2;
	if ($turn == 3)
	{
		usleep(20_000) until fired($node) or time > $start + 1.5;
		return;
	}

	# Another number of partitions.
	$self->attempt(q{SELECT outbox_set_destination('keyed', partitions => 1 + (txid_current() % 4)::integer)});
	$self->{redis}->refuse('flaky');
	my $before = $self->{redis}->count('orders');
	$load = $node->start_load(clients => CLIENTS, transactions => BURST / CLIENTS, rate => RATE,
		scripts => [ map { s/STEP/$step/r } @scripts ]);
	my $refuses = 1;
	while ($load->is_running and not fired($node))
	{
		usleep(20_000);
		next unless $refuses and $self->{redis}->count('orders') > $before + BURST / 2;
		$self->{redis}->accept('flaky');
		$refuses = 0;
	}
	$load->finish;
	$self->{redis}->accept('flaky');
	return;
}

# Writes one record and waits for long: a single segment is not compacted, but expires.
sub rest
{
	my ($self, $step, $turn) = @_;
	my $start = time;

	$self->attempt("SELECT claim('$step $turn')");
	usleep(20_000) until fired($self->{node}) or time > $start + 10;
	return;
}

# Runs a statement during which the server may die.
sub attempt
{
	my ($self, $sql) = @_;
	eval { $self->{node}->psql('postgres', $sql) };
	return;
}

# Tests that what has committed is there, once and in order, and nothing else is.
sub books_agree
{
	my ($self) = @_;
	my ($node, $redis) = @$self{ 'node', 'redis' };

	eventually { $node->status('pending = 0 AND deferred = 0 AND scheduled = 0 AND problem IS NULL') eq 't' }
	'all is sent';
	my @partitions = ('keyed', map { "keyed:$_" } 0 .. 3);
	my %bodies = map { $_ => [ $redis->bodies($_) ] } 'orders', 'events', 'flaky', 'later', 'claims', @partitions;
	foreach my $stream ('orders', 'events', 'flaky', 'later', 'claims')
	{
		my @ledger = split /\n/, $node->sql("SELECT body FROM ledger WHERE stream = '$stream'");
		is_exactly_once($bodies{$stream}, \@ledger, "$stream: what committed is there, once");
	}
	my @ledger = split /\n/, $node->sql("SELECT body FROM ledger WHERE stream = 'keyed'");
	is_exactly_once([ map { @$_ } @bodies{@partitions} ], \@ledger, 'keyed: what committed is in one of the partitions, once');
	foreach my $stream ('orders', 'events', 'flaky', @partitions)
	{
		is(overtaken(@{ $bodies{$stream} }), '', "$stream: in order");
	}
	is($node->sql('SELECT count(*) - count(DISTINCT msgid) FROM claimed'), 0, 'no message was claimed twice');
	is($node->sql('SELECT count(*) - count(DISTINCT (endpoint, msgid)) FROM outbox.records'), 0,
		'... nor has two records');
	eventually { $node->sql('SELECT count(*) FROM inbox WHERE NOT dispatched') == 0 } 'records in a table are marked';
	return;
}

# The first of the messages of a stream that comes after a later one of its client.
sub overtaken
{
	my (@bodies) = @_;
	my %last;

	foreach my $body (@bodies)
	{
		my ($client, $number, $part) = split / /, $body;
		my $place = $number * 10 + $part;

		return $body if $place <= ($last{$client} // 0);
		$last{$client} = $place;
	}
	return '';
}

# Tests that most segments are written again.
sub rings_go_round
{
	my ($self) = @_;
	my %current = (log => {}, record => {});

	eventually
	{
		$self->burst('after', 0);
		foreach (split /\n/, $self->{node}->sql(q{SELECT ring, segment FROM outbox.ring WHERE state = 'current'}))
		{
			my ($ring, $segment) = split /\|/;
			$current{$ring}{$segment} = 1;
		}
		keys %{ $current{log} } >= 3 and keys %{ $current{record} } >= 4;
	}
	'both rings go round';
	return;
}

1;
