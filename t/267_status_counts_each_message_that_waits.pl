# A message that is deferred while outbox.status reads is in what that shows, and so is one that
# was deferred before the server was started, also if no dispatcher runs: who waits until
# nothing is pending, scheduled or dead is not told so too early.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retry_delay = '5 min'
outbox.retry_max_delay = '5 min'
END
my $windows = $node->sql(q{SELECT string_agg('outbox.window_' || segment, ', ') FROM outbox.ring WHERE ring = 'log'});
my $holder = $node->session;
my $reader = $node->session;
my $pid = $reader->query_safe('SELECT pg_backend_pid()');

# Returns how many messages the view counts if it has begun to read before one was enqueued,
# and ends when that one is deferred, in this state.
sub read_while_deferred
{
	my ($state, $enqueue) = @_;

	$node->sql('CREATE TABLE seen (messages bigint)');
	$holder->query_safe("BEGIN; LOCK TABLE $windows");
	$reader->query_until(qr/asked/, "\\echo asked\nINSERT INTO seen SELECT pending + scheduled + dead FROM outbox.status;\n");
	ok($node->poll_query_until('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"), 'the view waits in the middle');
	kill 'STOP', $pid;
	$node->sql($enqueue);
	$holder->query_safe('COMMIT');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM outbox.deferred WHERE state = '$state'"), "... a message is $state");
	ok($node->poll_query_until('postgres', 'SELECT windows = 0 FROM outbox.status'), '... and in no window that is pending');
	kill 'CONT', $pid;
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM seen'), '... when the view goes on');
	return $node->sql('SELECT messages FROM seen; DROP TABLE seen');
}

# Has the message to "again" returned to the log, and not sent, as Redis hangs: that is done only as
# long as nothing is asked of Redis, so it may have to be tried again.
sub returns_again
{
	my $attempt = sub { $node->sql("UPDATE outbox.deferred SET next_attempt = now() + '$_[0]' WHERE dest = 'again'") };
	foreach (1 .. 20)
	{
		$redis->pause;
		$attempt->('0 s');
		$node->poll_query_until('postgres', q{SELECT state = 'returned' OR redis_state <> 'up' FROM outbox.deferred, outbox.status WHERE dest = 'again'});
		return 1 if $node->sql(q{SELECT state FROM outbox.deferred WHERE dest = 'again'}) eq 'returned';
		$attempt->('1 day');
		$redis->resume;
		$node->poll_query_until('postgres', q{SELECT redis_state = 'up' FROM outbox.status});
	}
	return 0;
}

$redis->refuse($_) foreach 'refused', 'dead';
is(read_while_deferred('waiting', q{SELECT outbox_enqueue('refused', 'x')}), 1, 'it is counted if it waits');
is(read_while_deferred('scheduled', q{SELECT outbox_enqueue('d', 'x', deliver_at => now() + '1 day')}), 2, 'it is counted if it is scheduled');

# It is deferred, and returned to the log when that has been read, while another one is on its way.
$redis->refuse('again');
$node->sql('CREATE TABLE seen (messages bigint)');
my $logs = $windows =~ s/window_/log_/gr;
my $log_holder = $node->session;
my $waits = sub { my ($process, $tables) = @_; return $node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = $process AND relation::regclass::text ~ 'outbox.$tables'"); };
$holder->query_safe("BEGIN; LOCK TABLE $windows");
$reader->query_until(qr/asked/, "\\echo asked\nINSERT INTO seen SELECT pending FROM outbox.status;\n");
ok($waits->($pid, 'window'), 'the view waits before it reads the log');
kill 'STOP', $pid;
my $pending = $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE state = 'waiting'});
$node->sql(q{SELECT outbox_enqueue('again', 'x')});
$holder->query_safe('COMMIT');
ok($node->poll_query_until('postgres', 'SELECT deferred = 2 AND windows = 0 FROM outbox.status'), '... a message is deferred');
$redis->pause;
$node->sql(q{SELECT outbox_enqueue('other', 'x')});
ok($node->poll_query_until('postgres', 'SELECT windows = 1 FROM outbox.status'), '... another one is on its way');
$log_holder->query_safe("BEGIN; LOCK TABLE $logs");
kill 'CONT', $pid;
ok($waits->($pid, 'log'), '... the view goes on');
$holder->query_safe("BEGIN; LOCK TABLE $windows");
$log_holder->query_safe('COMMIT');
ok($waits->($pid, 'window'), '... and has read the log');
kill 'STOP', $pid;
$holder->query_safe('COMMIT');
$redis->resume;
ok($node->poll_query_until('postgres', 'SELECT windows = 0 FROM outbox.status'), '... the other message is sent');
$redis->accept('again');
ok(returns_again(), '... and the deferred one is returned to the log');
kill 'CONT', $pid;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM seen'), '... when the view goes on again');
is($node->sql('SELECT messages FROM seen; DROP TABLE seen'), $pending + 2, 'a message that is deferred and returned meanwhile is counted');
$redis->resume;
$log_holder->quit;
eventually { $redis->count('again') == 1 } '... and sent';

$node->set('outbox.max_attempts' => 1);
is(read_while_deferred('dead', q{SELECT outbox_enqueue('dead', 'x')}), 3, 'it is counted if it is dead');
$_->quit foreach $holder, $reader;

my $counts = 'SELECT pending > 0, deferred, scheduled, dead, oldest_pending IS NOT NULL, dispatcher_pid IS NULL FROM outbox.status';
is($node->sql($counts), 't|1|1|1|t|f', 'all are counted while the dispatcher runs');
$node->restart_with(shared_preload_libraries => '');
is($node->sql($counts), 't|1|1|1|t|t', '... and when none has run since the server was started');

done_testing();
