# outbox_replay() sends nothing that was discarded, and nothing twice that was deferred, when the
# segment of the log that has it expires meanwhile: the tombstones that tell must stay as long
# as the segment is read, and without them it is not read.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\noutbox.max_attempts = 1");

sub current { return $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'}); }
sub state_of { return $node->sql("SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = $_[0]"); }

# Expiry runs only when it is asked for; segments take turns as soon as something is in them.
sub take_turns { $node->set('outbox.replay_window' => '0'); return; }
sub stay { $node->set('outbox.replay_window' => '1d'); return; }

# Enqueues a message whose destination is stored out of line, because all that is beside it is long, too.
my $random = q{(SELECT substr(string_agg(md5(random()::text), ''), 1, 1000) FROM generate_series(1, 32))};
my $long = "SELECT outbox_enqueue('long' || $random, 'x', message_id => $random, key => $random)";

# Replays while the segment with tombstones, the second one, expires, and cannot be emptied because
# its windows are locked. The replay waits for an index: that of the second or the first segment.
sub replay_waiting_in
{
	my ($waits_in, $name) = @_;
	my ($reader, $rebuilder, $replayer) = map { $node->session } 1 .. 3;

	take_turns();
	eventually
	{
		$node->sql(q{SELECT outbox_enqueue('tick', '')}) if current() != 1;
		$node->sql('SELECT outbox_cleanup()');
		return 0 if current() != 1 || state_of(0) ne 'empty';
		stay();
		return 1 if current() == 1 && $node->sql('SELECT NOT EXISTS (SELECT FROM outbox.log_1)') eq 't';
		take_turns();
		return 0;
	}
	"$name: the second segment is written, and the first one is empty";
	$node->sql($long);
	$redis->refuse('bad');
	$node->sql(q{SELECT outbox_enqueue('bad', 'late', message_id => 'late'), outbox_enqueue('bad', 'discarded', message_id => 'discarded')});
	eventually { $node->status('dead') == 2 } '... two messages die';
	$node->sql(q{SELECT outbox_discard('bad', 'discarded')});
	$redis->accept('bad');
	$node->sql(q{SELECT outbox_retry('bad', 'late')});
	eventually { $redis->count('bad') == 1 } '... one is discarded, the other one is sent later';
	take_turns();
	eventually { current() == 0 } '... the first segment is written';
	$node->sql($long);
	stay();
	ok($node->wait_until_sent, '... and sent');
	eventually { state_of(1) eq 'quiet' } '... the second one is full';

	my $toast = $node->sql("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'outbox.log_$waits_in'::regclass");
	$reader->query_safe('BEGIN; LOCK TABLE outbox.window_1 IN ACCESS SHARE MODE');
	$rebuilder->query_safe("BEGIN; REINDEX TABLE $toast");
	my $pid = $replayer->query_safe('SELECT pg_backend_pid()');
	$replayer->query_until(qr/started/, "\\echo started\nSELECT outbox_replay('-infinity', 'bad');\n");
	ok($node->poll_query_until('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), '... a replay waits');
	$node->set('outbox.replay_window' => '0');
	eventually { $node->sql('SELECT outbox_cleanup()'); state_of(1) eq 'retired' } '... the segment with what was discarded expires';
	$node->sql('SELECT outbox_cleanup()');
	$rebuilder->query_safe('ROLLBACK');
	ok($node->poll_query_until('postgres', "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid"), '... the replay ends');
	$reader->query_safe('COMMIT');
	ok($node->wait_until_sent, '... its messages are sent');
	eventually { $node->sql('SELECT outbox_cleanup(), count(*) = 0 FROM outbox.deferred') =~ /t$/ } '... in the end no tombstone is left';
	$_->quit foreach $reader, $rebuilder, $replayer;
	my $sent = $redis->sequence('bad');
	$redis->command('DEL', 'bad');
	return $sent;
}

is(replay_waiting_in(1, 'a replay that is reading'), 'late late', '... what was discarded is not sent, and the other one once more');
is(replay_waiting_in(0, 'a replay that has not come so far'), 'late', '... nothing of a segment that has expired is sent');
done_testing();
