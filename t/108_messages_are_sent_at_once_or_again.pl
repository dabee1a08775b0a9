# outbox_send() sends at once, whether or not the transaction commits, and reports each
# failure; outbox_replay() sends again what the log retains.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes qw(time);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");

sub ids { return join ' ', map { $_->{id} } $redis->entries($_[0]); }

# outbox_send
my $entry = $node->sql(q{SELECT outbox_send('now', 'text', '{"h": "v"}', 'id 1')});
my ($got) = $redis->entries('now');
is_deeply([ @$got{qw(entry id body headers)} ], [ $entry, 'id 1', 'text', { h => 'v' } ], 'outbox_send returns the id of the entry');
ok(abs($got->{time} / 1000 - time) < 60, '... which has the time');
$node->sql(q{BEGIN; SELECT outbox_send('now', '{"a": 1}'::json); SELECT outbox_send('now', '{"a":1}'::jsonb); SELECT outbox_send('now', '\x00ff'::bytea); ROLLBACK});
is($redis->sequence('now'), qq[text {"a": 1} {"a": 1} \0\xff], 'it arrives though the transaction rolls back');
is($node->status('pending'), 0, '... and leaves nothing');
$node->sql(q{SELECT outbox_set_destination('alias', 'stream')});
$node->sql(q{SELECT outbox_send('alias', 'x')});
is($redis->sequence('stream'), 'x', 'it knows the stream of a destination');
$redis->refuse('bad');
like($node->sql_error(q{SELECT outbox_send('bad', 'x')}), qr/^08006: .*WRONGTYPE/, 'it tells what Redis refuses');
like($node->sql_error(q{SELECT outbox_send(NULL, 'x')}), qr/^22004/, '... and what it refuses itself');
like($node->sql_error(q{SELECT outbox_send('', 'x')}), qr/^22023/, '... an empty dest');
like($node->sql_error(q{SELECT outbox_send('d', NULL::text)}), qr/^22004/, '... no body');

# Redis hangs, then is away.
$node->sql('SELECT outbox_pause()');
$redis->pause;
my $taken = seconds { like($node->sql_error(q{SET outbox.command_timeout = '1s'; SET outbox.connect_timeout = '1s'; SELECT outbox_send('now', 'x')}), qr/^08006/, 'a Redis that hangs is an error') };
cmp_ok($taken, '>', 0.9, '... after the time allowed');
cmp_ok($taken, '<', 60, '... and not much later');
my $session = $node->session('postgres', on_error_stop => 0);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe(q{SET outbox.command_timeout = '1h'; SET outbox.connect_timeout = '1h'});
$session->query_until(qr/started/, "\\echo started\nSELECT outbox_send('now', 'cancelled');\n");
ok($node->poll_query_until('postgres', "SELECT state = 'active' AND query LIKE '%outbox_send%' AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid"), 'a session waits for it');
$taken = seconds
{
	$node->sql("SELECT pg_cancel_backend($pid)");
	ok($node->poll_query_until('postgres', "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $pid"), '... until it is cancelled');
};
cmp_ok($taken, '<', 170, '... and not when the time is up');
$session->quit;
$redis->resume;
$redis->stop;
like($node->sql_error(q{SELECT outbox_send('now', 'x')}), qr/^08006/, 'a Redis that is away is an error');

# A hundred failures, and as many successes, in one session leave no descriptor open.
sub descriptors { return scalar(() = glob "/proc/$_[0]/fd/*"); }
my $fails = q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP BEGIN PERFORM outbox_send('now', 'x'); EXCEPTION WHEN connection_failure THEN NULL; END; END LOOP; END $$};
$session = $node->session;
$pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe(q{DO $$ BEGIN PERFORM outbox_send('now', 'x'); EXCEPTION WHEN connection_failure THEN NULL; END $$});
my $before = descriptors($pid);
$session->query_safe($fails);
cmp_ok(descriptors($pid), '<=', $before + 3, 'a hundred failures leave no descriptor open');
$redis->start;
$session->query_safe(q{SELECT count(outbox_send('bulk', i::text)) FROM generate_series(1, 100) i});
cmp_ok(descriptors($pid), '<=', $before + 3, '... nor do a hundred messages');
is($redis->sequence('bulk'), join(' ', 1 .. 100), '... which arrived in order');
$session->query_safe(q{DO $$ BEGIN FOR i IN 1 .. 100 LOOP BEGIN PERFORM outbox_send('bad', 'x'); EXCEPTION WHEN connection_failure THEN NULL; END; END LOOP; END $$});
cmp_ok(descriptors($pid), '<=', $before + 3, '... nor a hundred refusals');
$session->quit;
$node->sql('SELECT outbox_resume()');

# outbox_replay
$node->sql(q{SELECT outbox_enqueue(d, i::text, message_id => d || i) FROM generate_series(1, 3) i, unnest('{a,b}'::text[]) d});
ok($node->wait_until_sent, 'messages are sent');
my $since = $node->sql('SELECT clock_timestamp()');
$node->sql(q{SELECT outbox_enqueue(d, i::text, message_id => d || i) FROM generate_series(4, 5) i, unnest('{a,b}'::text[]) d});
$node->sql(q{SELECT outbox_enqueue('bad', 'deferred', message_id => 'bad1')});
$node->sql(q{SELECT outbox_enqueue('a', 'scheduled', message_id => 'a9', deliver_at => now() + interval '1 h')});
eventually { $node->status('deferred, scheduled, windows') eq '1|1|0' } 'others are, too, one is refused and one is scheduled';
is($node->sql("SELECT outbox_replay('$since', 'a')"), 2, 'outbox_replay since then, of one destination');
eventually { $redis->count('a') == 7 } '... sends';
is(ids('a'), 'a1 a2 a3 a4 a5 a4 a5', '... what came later, with the ids it had, in order');
is(ids('b'), 'b1 b2 b3 b4 b5', '... not of another destination');
is($node->sql(q{SELECT outbox_replay('-infinity', 'b')}), 5, 'all of a destination');
eventually { $redis->count('b') == 10 } '... is sent';
is(ids('b'), 'b1 b2 b3 b4 b5 b1 b2 b3 b4 b5', '... again, in order');
is($node->sql(q{SELECT outbox_replay(now())}), 0, 'nothing is later than now');
is($node->sql(q{SELECT outbox_replay('-infinity', 'bad')}), 0, 'what is deferred is not sent again');
$node->sql(q{BEGIN; SELECT outbox_replay('-infinity', 'a'); ROLLBACK});
$node->sql(q{SELECT outbox_enqueue('a', '6', message_id => 'a6')});
eventually { $redis->count('a') == 8 } 'a replay that was rolled back';
is(ids('a'), 'a1 a2 a3 a4 a5 a4 a5 a6', '... is none');
$redis->accept('bad');
eventually { $redis->count('bad') == 1 } 'the deferred message arrives';
ok($node->poll_query_until('postgres', 'SELECT deferred = 0 AND windows = 0 FROM outbox.status'), '... for good');
is($node->sql(q{SELECT outbox_replay('-infinity', 'bad')}), 1, '... then it is sent again, once');
eventually { $redis->count('bad') == 2 } '... too';
is(ids('bad'), 'bad1 bad1', '... with its id');

done_testing();
