# Redis goes back to a time before a window of which only a part is kept: a transaction
# that went on while the log rotated has messages in a segment that has expired; or Redis
# goes back to the middle of the oldest window, of which only the end is kept. What is
# left is sent again, and a warning says that something may be missing.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '2s'
outbox.cleanup_interval = '100ms'
END
my $windows = join ' UNION ALL ', map { "SELECT $_ AS segment, number, uuid FROM outbox.window_$_" } 0 .. 3;

sub enqueue
{
	$node->sql("SELECT outbox_enqueue('d', '$_[0]')");
	return;
}

sub state_of { return $node->sql("SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = $_[0]"); }
sub fence { my $key = $redis->key('fence'); return ($key, $redis->command('GET', $key)); }

# How often a dispatcher has connected.
sub connections { return ($redis->command('INFO', 'commandstats') =~ /cmdstat_script\|load:calls=(\d+)/)[0]; }

# A transaction that goes on when its segment is not the current one any more.
enqueue('early');
my $session = $node->session;
$session->query_safe(q{BEGIN; SELECT outbox_enqueue('d', 'long')});
my $segment = $node->sql(q{SELECT max(substr(relname, 5)) FROM pg_locks l JOIN pg_class c ON c.oid = relation WHERE relname ~ '^log_\d$' AND mode = 'RowExclusiveLock'});
like($segment, qr/^\d$/, 'a transaction writes to a segment');
eventually { state_of($segment) ne 'current' } '... and goes on when the log has rotated';
$node->set('outbox.replay_window' => '1h');
enqueue('before');
ok($node->wait_until_sent, 'another message is sent');
my ($key, $before) = fence();
$session->query_safe('COMMIT');
$session->quit;
enqueue('after');
ok($node->wait_until_sent, 'both are sent');
is(join(' ', sort $redis->bodies('d')), 'after before early long', '... once');
eventually { state_of($segment) eq 'quiet' && $node->sql("SELECT published_at IS NOT NULL FROM outbox.ring WHERE ring = 'log' AND segment = $segment") eq 't' }
'its segment was published';
$node->sql("UPDATE outbox.ring SET published_at = published_at - interval '2 h', generation = (SELECT max(generation) + 1 FROM outbox.ring) WHERE ring = 'log' AND segment = $segment");
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
eventually { state_of($segment) eq 'empty' } '... a long time ago: it is emptied';
is($node->sql("SELECT count(*) FROM ($windows) w WHERE number = split_part('$before', ' ', 1)::bigint"), 1, '... and its window is kept');
eventually { $node->sql('SELECT count(*) FROM outbox.problems') == 0 } '... nothing is wrong';

# A new connection changes nothing.
my $sent = $redis->count('d');
$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal');
enqueue('more');
ok($node->wait_until_sent, 'the connection is lost and opened again');
is($redis->count('d'), $sent + 1, '... nothing is sent twice');
eventually { $node->sql('SELECT count(*) FROM outbox.problems') == 0 } '... and nothing is wrong';

# For a while nothing can be added, so connection after connection reads that window.
my $log = $node->log_position;
my $told = qr/some messages of window \d+ are no longer in the log\n.*DETAIL:  Messages enqueued before .* that Redis has lost may not be sent again/;
$redis->command('ACL', 'SETUSER', 'default', '-xadd');
$redis->command('SET', $key, $before);
eventually { $node->log_since($log) =~ $told } 'Redis goes back to before that window: the log says what may be missing';
my $connections = connections();
eventually { connections() > $connections + 3 } '... which later connections find, too';
$redis->command('ACL', 'SETUSER', 'default', '+xadd');
eventually { $redis->count('d') >= $sent + 3 } 'what is left is sent again';
ok($node->wait_until_sent, '... for good');
is(join(' ', ($redis->bodies('d'))[ $sent + 1 .. $sent + 2 ]), 'after more', '... in order');
eventually { $node->sql('SELECT kind FROM outbox.problems') eq 'loss' } '... and that something is missing is reported';
is(scalar(() = $node->log_since($log) =~ /$told/g), 1, '... by the log once');
isnt($node->sql('SELECT outbox_acknowledge_loss()'), '', 'it is acknowledged');

# In the middle of the oldest window.
my $oldest = $node->sql("SELECT number || ' ' || uuid FROM ($windows) w ORDER BY number LIMIT 1");
$redis->command('SET', $key, "$oldest connection 1");
eventually { $node->sql('SELECT kind FROM outbox.problems') eq 'loss' } 'Redis goes back into the oldest window: that is reported, too';
ok($node->wait_until_sent, '... and the rest is sent again');
isnt($node->sql('SELECT outbox_acknowledge_loss()'), '', 'it is acknowledged');

done_testing();
