# outbox_wait() returns true when all messages of a record are in Redis, false when its
# time is up, NULL when there is no such record.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

sub handle
{
	my ($msgid, @bodies) = @_;
	$node->sql(join '; ', 'BEGIN', "SELECT outbox_begin('$msgid')", (map { "SELECT outbox_enqueue('d', '$_')" } @bodies),
		'SELECT outbox_commit()', 'COMMIT');
	return;
}

handle('m1', 1, 2);
is($node->sql(q{SELECT outbox_wait('m1', timeout => '3 min')}), 't', 'true when the messages are sent');
is($redis->count('d'), 2, '... which they are');
handle('m2');
is($node->sql(q{SELECT outbox_wait('m2', timeout => '3 min')}), 't', 'also for a record without messages');

is($node->sql(q{SELECT outbox_wait('never') IS NULL}), 't', 'NULL for an unknown message');
is($node->sql(q{SELECT outbox_wait('m1', 'default')}), 't', 'the endpoint may be named');
is($node->sql(q{SELECT outbox_create_endpoint('other'); SELECT outbox_wait('m1', 'other') IS NULL}) =~ s/^\s*//r, 't',
	'NULL for a message of another endpoint');

$redis->pause;
handle('m3', 3);
my $answer;
my $took = seconds { $answer = $node->sql(q{SELECT outbox_wait('m3', timeout => '500 ms')}) };
is($answer, 'f', 'false when time is up');
cmp_ok($took, '>=', 0.5, '... not before');
cmp_ok($took, '<', 150, '... nor long after');
is($node->sql(q{SELECT outbox_wait('m3', timeout => '0')}), 'f', 'a look without waiting');
is($node->sql(q{SELECT outbox_wait('m1')}), 't', 'what was sent before is known');

my $session = $node->session;
$session->query_until(qr/asked/, "\\echo asked\nSELECT outbox_wait('m3', timeout => '3 min');\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT outbox_wait%' AND state = 'active'}),
	'a session waits while Redis hangs');
$redis->resume;
like($session->query('SELECT 1'), qr/^t$/m, '... until the message is sent');
$session->quit;

# It can be cancelled like any other wait.
$redis->pause;
handle('m4', 4);
like($node->sql_error(q{SET statement_timeout = '300ms'; SELECT outbox_wait('m4')}), qr/^57014/, 'a statement timeout ends it');
$redis->resume;

# In the transaction that writes the record it would wait for itself.
$took = seconds {
	unlike($node->sql_error(q{BEGIN; SELECT outbox_begin('m5'); SELECT outbox_enqueue('d', '5'); SELECT outbox_commit(); SELECT outbox_wait('m5', timeout => '10 min'); COMMIT}),
		qr/^no error/, 'an error in the transaction that it waits for');
};
cmp_ok($took, '<', 150, '... at once, and not when the time is up');

# A message that was scheduled, and was due just before everything was paused, is waited for as
# long as the pause lasts, although the log does not have the row any more that was scheduled.
$node->set('outbox.replay_window' => '1s', 'outbox.cleanup_interval' => '-1');
$node->sql(q{BEGIN; SELECT outbox_begin('m6'); SELECT outbox_enqueue('late', '6', deliver_at => now() + interval '1 day'); SELECT outbox_commit(); COMMIT});
eventually { $node->sql(q{SELECT state FROM outbox.deferred WHERE dest = 'late'}) eq 'scheduled' } 'a message is scheduled';
my $segment = $node->sql(q{SELECT log_segment FROM outbox.deferred WHERE dest = 'late'});
eventually
{
	$node->sql(q{SELECT outbox_enqueue('d', 'another')});
	$node->sql("SELECT published_at IS NOT NULL FROM outbox.ring WHERE ring = 'log' AND segment = $segment") eq 't';
}
'... and other segments of the log are written';
eventually { $node->status('windows') == 0 } '... and all is sent';
$session = $node->session;
$session->query_safe('BEGIN; LOCK TABLE outbox.window_0, outbox.window_1, outbox.window_2, outbox.window_3 IN SHARE MODE');
$node->sql(q{UPDATE outbox.deferred SET next_attempt = now() WHERE dest = 'late'});
eventually { $node->sql(q{SELECT state FROM outbox.deferred WHERE dest = 'late'}) eq 'returned' } 'it is due, and in the log again';
$node->sql('SELECT outbox_pause()');
$session->query_safe('COMMIT');
$session->quit;
eventually
{
	$node->sql('SELECT outbox_cleanup()');
	$node->sql("SELECT state NOT IN ('quiet', 'retired') FROM outbox.ring WHERE ring = 'log' AND segment = $segment") eq 't';
}
'everything is paused, and the segment that it was in first is emptied';
is($node->sql(q{SELECT outbox_wait('m6', timeout => '0')}), 'f', '... it is waited for');
$node->sql('SELECT outbox_resume()');
is($node->sql(q{SELECT outbox_wait('m6', timeout => '3 min')}), 't', '... until it is sent');
is($redis->count('late'), 1, '... which it is');

done_testing();
