# A record expires when its retention has passed since its messages were sent,
# and never before they were. What has expired leaves no space behind.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes 'time';

my $redis = Redis->new(started => 0);
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retention = '1s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
END

# A transaction that claims must be younger than the retention; it may be interrupted for a second.
my $patience = q{SET outbox.retention = '1h'};

sub handle
{
	my ($msgid, $arguments) = @_;
	$node->sql("$patience; BEGIN; SELECT outbox_begin('$msgid'" . ($arguments // '') . "); SELECT outbox_enqueue('d', '$msgid'); SELECT outbox_commit(); COMMIT");
	return;
}

# Check whether a message would be processed if it came now.
sub is_new
{
	my ($msgid, $arguments) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$msgid'" . ($arguments // '') . '); ROLLBACK') eq 't';
}

# How many rows of messages, or records, are still on disk, in all segments or in some.
sub rows
{
	my ($table, $which) = @_;
	my @segments = split /\n/, $node->sql("SELECT segment FROM outbox.ring WHERE ring = '$table' AND " . ($which // 'true'));
	return $node->sql('SELECT ' . join ' + ', 0, map { "(SELECT count(*) FROM outbox.${table}_$_)" } @segments);
}

# Waits until so many seconds have passed by the server's clock.
sub let_pass
{
	my ($seconds) = @_;
	my $until = $node->sql("SELECT clock_timestamp() + interval '$seconds s'");
	return $node->poll_query_until('postgres', "SELECT clock_timestamp() > '$until'");
}

#
# Redis is away for much longer than the retention.
#
handle("m$_") foreach 1 .. 10;
let_pass(4);
is(scalar(grep { !is_new("m$_") } 1 .. 10), 10, 'records outlive the retention as long as their messages are not sent');
is($node->sql('SELECT outbox_cleanup()'), 0, '... also when a round of expiry is asked for');
is($node->status('pending'), 10, '... and the messages are kept');

$node->restart;
let_pass(2);
is(scalar(grep { !is_new("m$_") } 1 .. 10), 10, '... also after a restart');
is($node->status('pending'), 10, '... with the messages');

#
# Redis comes back.
#
my $return = time;
$redis->start;
eventually { $redis->count('d') == 10 } 'they are sent when Redis is there';
is_exactly_once([ $redis->bodies('d') ], [ map { "m$_" } 1 .. 10 ], '... each once');
ok(!is_new('m1') || time - $return >= 1, 'sent, the records are still there');
eventually { is_new('m1') } 'and expire in the end';
cmp_ok(time - $return, '>=', 1, '... not before the retention has passed since they were sent');
eventually { rows('record') == 0 } 'no record stays on disk';
eventually { rows('log') == 0 } 'no message stays on disk';
ok(is_new("m$_"), "m$_ has expired") foreach 2 .. 10;
is($redis->count('d'), 10, 'nothing was sent again');

#
# While Redis is away the log is kept, however long ago it was sent: Redis may
# come back without it.
#
$node->set('outbox.replay_window' => '1h');
$node->sql(q{SELECT count(outbox_enqueue('r', i::text)) FROM generate_series(1, 10) i});
eventually { $redis->count('r') == 10 } 'messages are sent';
my ($segment) = grep { $node->sql("SELECT count(*) FROM outbox.log_$_") == 10 } 0 .. 3;
ok($node->wait_until_sent, '... as is known');
$redis->stop;
$redis->lose_data;
$node->set('outbox.replay_window' => '1s');
eventually { $node->sql("SELECT state = 'quiet' AND published_at IS NOT NULL FROM outbox.ring WHERE ring = 'log' AND segment = $segment") eq 't' }
'... and the log goes on in another segment';
$node->sql(q{SELECT outbox_enqueue('r', '11')});
let_pass(4);
is(rows('log'), 11, 'the log is kept while Redis is away');
$redis->start;
eventually { $redis->count('r') == 11 } '... for a Redis that comes back empty';

#
# The longest retention of all endpoints decides.
#
$node->sql(q{SELECT outbox_create_endpoint('patient', retention => '1 hour')});
handle('m1', q{, 'patient'});
$node->wait_until_sent;
let_pass(4);
ok(!is_new('m1', q{, 'patient'}), 'the record of an endpoint with a longer retention lives longer');
$node->sql(q{SELECT outbox_drop_endpoint('patient')});

#
# Only outbox_cleanup() removes anything.
#
$node->wait_until_sent;
eventually { rows('record') == 0 } 'without its endpoint that record expires too';
$node->set('outbox.cleanup_interval' => -1);
# In one transaction, so that they are in one segment: records in several ones would be compacted.
$node->sql("$patience; BEGIN; " . join('', map { "SELECT outbox_begin('n$_'); SELECT outbox_enqueue('d', 'n$_'); SELECT outbox_commit();" } 1 .. 10) . 'COMMIT');
$node->wait_until_sent;
let_pass(3);
is(rows('record'), 10, 'with outbox.cleanup_interval = -1 nothing is removed');
my $removed = 0;
eventually { $removed += $node->sql('SELECT outbox_cleanup()'); $removed >= 10 }
'outbox_cleanup() removes what has expired';
is($removed, 10, '... and says how many records that were');
is(rows('record'), 0, '... which are gone');

#
# The clock is a year behind for a moment; then it was a year ahead, and is right again. Here the
# times in the table are others.
#
sub move_times
{
	my ($by) = @_;
	$node->sql("UPDATE outbox.ring SET since = since + interval '$by', published_at = published_at + interval '$by', generation = generation + 1");
	$node->restart;
	return;
}
$node->sql("$patience; BEGIN; " . join('', map { "SELECT outbox_begin('o$_'); SELECT outbox_enqueue('d', 'o$_'); SELECT outbox_commit();" } 1 .. 10) . 'COMMIT');
$node->wait_until_sent;
# A transaction that is interrupted may write to two segments.
eventually { !grep { rows($_) != rows($_, q{state = 'quiet' AND published_at IS NOT NULL}) } 'log', 'record' } 'all segments are published';
$node->set('outbox.retention' => '1h');
move_times('1 year');
$node->sql('SELECT outbox_cleanup()');
move_times('-1 year');
is($node->sql('SELECT outbox_cleanup()'), 0, 'no record expires because the clock was behind');
is(scalar(grep { is_new("o$_") } 1 .. 10), 0, '... each of them counts');
$node->set('outbox.retention' => '1s');
$node->sql(q{ALTER SYSTEM SET outbox.cleanup_interval = '100ms'});
move_times('1 year');
handle('p');
eventually { rows('record') == 0 } 'records that were published by a clock that was ahead expire';
eventually { rows('log') == 0 } '... and so do messages';

done_testing();
