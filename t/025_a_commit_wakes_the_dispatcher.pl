# Each commit of a transaction that enqueued a message wakes the dispatcher, so no message
# waits for outbox.poll_interval.

use strict;
use warnings FATAL => 'all';

use Outbox;
use POSIX 'fmod';
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.poll_interval = '1h'
outbox.cleanup_interval = '1h'
outbox.command_timeout = '60s'
restart_after_crash = on
END
my $sent = 0;

# Does it four times. The dispatcher has other reasons to wake up, about once in a
# second: if these four did not wake it, it would always need as many seconds. On a
# machine that is busy with other things it may take several tries to see that it needs
# none.
sub four_at_once(&$)
{
	my ($code, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return eventually
	{
		my $took = 0;
		$took += $code->() foreach 1 .. 4;
		$took < 2;
	}
	$name;
}

sub arrives
{
	my ($name, $sql, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	four_at_once
	{
		my $session = ref $database ? $database : undef;
		$session ? $session->query_safe($sql) : $node->sql($sql, $database);
		$sent++;
		return seconds { wait_until { $redis->count('d') == $sent } };
	}
	"$name arrives at once";
	is($redis->count('d'), $sent, '... once');
	return;
}

arrives('a message', q{SELECT outbox_enqueue('d', 'x')});
arrives('a handler', q{BEGIN; SELECT outbox_begin(pg_current_xact_id()::text); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT});
arrives('a savepoint', q{BEGIN; SAVEPOINT s; SELECT outbox_enqueue('d', 'x'); RELEASE s; COMMIT});
arrives('a savepoint before one that is rolled back',
	q{BEGIN; SAVEPOINT s; SELECT outbox_enqueue('d', 'x'); RELEASE s; SAVEPOINT t; SELECT outbox_enqueue('d', 'y'); ROLLBACK TO t; COMMIT});
arrives('after a rollback in the same session',
	q{BEGIN; SELECT outbox_enqueue('d', 'x'); ROLLBACK; SELECT outbox_enqueue('d', 'x')});
arrives('without waiting for WAL', q{SET synchronous_commit = off; SELECT outbox_enqueue('d', 'x')});
arrives('a DO block that commits', <<'END');
DO $$ BEGIN PERFORM outbox_enqueue('d', 'x'); COMMIT; END $$
END

# A session that enqueues and stays connected.
my $session = $node->session;
arrives('a session that goes on', q{SELECT outbox_enqueue('d', 'x')}, $session);
arrives('... with prepared transactions',
	q{BEGIN; SELECT outbox_enqueue('d', 'x'); PREPARE TRANSACTION 'p'; SELECT 1; COMMIT PREPARED 'p'}, $session);
$session->quit;
arrives('COMMIT PREPARED in another session', <<'END');
BEGIN;
SELECT outbox_enqueue('d', 'x');
PREPARE TRANSACTION 'p';
\connect
COMMIT PREPARED 'p';
END

my $session_of_waits = $node->session;
four_at_once { return seconds { $session_of_waits->query_safe('SELECT outbox_cleanup()') } } 'outbox_cleanup() is answered at once';
four_at_once
{
	$sent++;
	$session_of_waits->query_safe("BEGIN; SELECT outbox_begin('w$sent'); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT");
	return seconds { $session_of_waits->query_safe("SELECT outbox_wait('w$sent')") };
}
'so is outbox_wait()';
$session_of_waits->quit;

# Nor does what was committed while it could not be sent or looked for. There is nothing else to send when Redis is back.
sub has_nothing_left { return $node->sql('SELECT max(published) = max(number) FROM outbox.window_0') eq 't'; }
eventually
{
	wait_until { has_nothing_left() };
	$redis->stop;
	$node->reload;
	wait_until { $node->status('redis_state') eq 'down' };
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	my $position = $node->log_position;
	$redis->start;
	$sent++;
	wait_until { $redis->count('d') == $sent };
	my ($minutes, $seconds) = $node->log_since($position) =~ /:(\d\d):(\d\d\.\d+) .*Redis can be used again/;
	my $entered = ($redis->command('XREVRANGE', 'd', '+', '-', 'COUNT', 1)->[0][0] =~ /(\d+)-/)[0] / 1000;
	return fmod($entered - $minutes * 60 - $seconds + 60, 3600) - 60 < 0.5;
}
'what waits for Redis arrives at once when it is back';

my ($enqueues, $drops) = map { $node->session } 1 .. 2;
four_at_once
{
	$enqueues->query_safe(q{BEGIN; SELECT outbox_enqueue('d', 'x')});
	$drops->query_until(qr/asked/, "\\echo asked\nBEGIN; DROP EXTENSION outbox;\n");
	wait_until { $node->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'}) == 1 };
	$enqueues->query_safe('COMMIT');
	$drops->query_safe('ROLLBACK');
	$sent++;
	return seconds { wait_until { $redis->count('d') == $sent } };
}
'what waits for DROP EXTENSION arrives at once when that is rolled back';
$_->quit foreach $enqueues, $drops;

$node->sql('CREATE DATABASE fresh');
$node->sql('CREATE EXTENSION outbox', 'fresh');
arrives('a new database', q{SELECT outbox_enqueue('d', 'x')}, 'fresh');

# While the dispatcher waits for Redis, which does not answer for a moment.
my $pid = $node->dispatcher;
eventually { has_nothing_left() } 'the dispatcher has nothing left to do';
$redis->pause;
$node->sql("SELECT pg_terminate_backend($pid, 10000)");
eventually { my $next = $node->dispatcher; $next && $next != $pid } 'the next dispatcher connects';
eventually { $node->sql(q{SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher' AND datname = 'postgres'}) eq 't' }
'... and waits for Redis';
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$sent++;
$redis->resume;
eventually { $redis->count('d') == $sent } 'what is committed meanwhile is sent';

# What was committed before there was a dispatcher to wake.
$redis->stop;
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$sent++;
$node->restart;
$redis->start;
eventually { $redis->count('d') == $sent } 'what waits at a start is sent';
$node->kill_dispatcher;
eventually { $node->answers } 'after a crash';
arrives('... too', q{SELECT outbox_enqueue('d', 'x')});

done_testing();
