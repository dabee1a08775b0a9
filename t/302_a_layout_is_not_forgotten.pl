# Over how many partitions a stream is spread is told in Redis. Redis may lose what it was
# told last, another server may take over, somebody may delete the key: workers keep the
# order of each key. What no consumer needs is removed.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $folder = Cwd::abs_path(dirname(__FILE__) . '/../examples/partitions');
my $python = python() or plan skip_all => 'no python3 with psycopg and redis';
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, init => { allows_streaming => 1 }, conf => "outbox.takeover_delay = '0s'\n");
my ($worker, $output);
my $sent = 0;

sub layout { return { @{ $redis->command('HGETALL', "outbox:partitions:$_[0]") } }; }
sub past { my ($stream) = @_; return scalar grep { /^past:/ } keys %{ layout($stream) }; }

# The messages are handled in a database of their own, which never fails over.
my $consumers = Outbox->create('consumers', redis => $redis, conf => 'outbox.dispatch = off');
$consumers->sql(PostgreSQL::Test::Utils::slurp_file("$folder/schema.sql"));

sub start_worker
{
	my $here = Cwd::getcwd();
	chdir $folder;
	$output = '';
	$worker = IPC::Run::start([ $python, 'worker.py', $consumers->connstr('postgres'), $redis->url, 'orders', 'billing', 'w', 1000 ], '<', \undef, '>&', \$output);
	chdir $here;
	return;
}

sub end_worker { eval { $worker->signal('KILL'); $worker->finish }; return; }

sub send_messages
{
	my ($server, $count) = @_;
	$server->sql("SELECT outbox_enqueue('orders', jsonb_build_object('number', i), message_id => format('k%s-%s', k, i), key => 'k' || k)
		FROM generate_series($sent + 1, $sent + $count) i, generate_series(1, 12) k");
	$sent += $count;
	return;
}

sub spread
{
	my ($server, $stream, $partitions) = @_;
	$server->sql("SELECT outbox_set_destination('$stream', partitions => $partitions)");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { (layout($stream)->{partitions} // 0) == $partitions } "$stream has $partitions partitions";
	return;
}

sub check_books
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $consumers->sql('SELECT count(*) FROM handled') == 12 * $sent } "$what: all is handled" or diag($output);
	is($consumers->sql(<<"SQL"), 12, '... the messages of each key in their order, each once');
SELECT count(*) FROM (SELECT key FROM handled GROUP BY key
	HAVING array_agg((body::json ->> 'number')::integer ORDER BY place) = array(SELECT generate_series(1, $sent))) t
SQL
	return;
}

# A failover to a replica that lags: Redis loses a change, and what was sent after it. Its
# clock was ahead when it was told.
spread($node, 'orders', 4);
send_messages($node, 5);
$node->wait_until_sent;
start_worker();
check_books('one layout');
end_worker();
send_messages($node, 5);
$node->wait_until_sent;
$redis->stop;
$redis->save_data;
$redis->start;
send_messages($node, 5);
$node->wait_until_sent;
my $ahead = $redis->command('HINCRBY', 'outbox:partitions:orders', 'epoch', 1_000_000_000);
spread($node, 'orders', 7);
my $lost = layout('orders')->{epoch};
cmp_ok($lost, '>', $ahead, 'an epoch is greater than the one before, whatever the clock says');
send_messages($node, 5);
$node->wait_until_sent;
start_worker();
eventually { $consumers->sql("SELECT count(*) FROM consumer_position WHERE epoch = $lost") > 0 } 'a consumer has read that layout';
end_worker();
$redis->kill9;
$redis->restore_data;
$redis->start;
eventually { (layout('orders')->{epoch} // 0) > $lost } 'Redis has lost it, and is told again with a greater epoch';
is(layout('orders')->{partitions}, 7, '... of the layout that counts');
send_messages($node, 5);
start_worker();
check_books('Redis has lost a change');

# A standby is promoted while the dispatcher of the old primary is stopped within a change.
$node->backup('base');
my $standby = Outbox->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my $incumbent = $node->dispatcher;
my $lease = $redis->key('lease');
kill 'STOP', $incumbent;
send_messages($node, 5);
$node->sql(q{SELECT outbox_set_destination('orders', partitions => 3)});
send_messages($node, 5);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$node->sql(q{SELECT outbox_set_destination('orders', partitions => 9)});
$redis->command('DEL', $lease); # it has run out
eventually { layout('orders')->{partitions} == 3 } 'a standby that was promoted goes on with the change';
kill 'CONT', $incumbent;
eventually { $node->status('dispatcher_state') eq 'waiting for the lease' } 'the old primary wakes up';
spread($standby, 'orders', 5);
send_messages($standby, 5);
check_books('another server has taken over');
is(layout('orders')->{partitions}, 5, '... the old one tells nothing');
end_worker();
$node->stop('immediate');

# Somebody deletes the key.
my $epoch = layout('orders')->{epoch};
$redis->command('DEL', 'outbox:partitions:orders');
eventually { $standby->sql('SELECT outbox_cleanup()'); (layout('orders')->{epoch} // 0) > $epoch } 'a key that was deleted is written again';
is(layout('orders')->{partitions}, 5, '... as it was');

# Layouts that are over remain as long as there is an entry of before.
spread($standby, 'trimmed', $_) foreach 2, 3;
is(past('trimmed'), 0, 'no consumer needs a layout before which nothing was sent');
$standby->sql(q{SELECT outbox_enqueue('trimmed', 'x', message_id => 'm' || i) FROM generate_series(1, 30) i});
ok($standby->wait_until_sent, 'messages come');
spread($standby, 'trimmed', $_) foreach 2, 4, 2;
is(past('trimmed'), 2, 'layouts that are over are kept');
$redis->command('XTRIM', "trimmed:$_", 'MAXLEN', 0) foreach 0 .. 2;
$standby->sql(q{SELECT outbox_enqueue('trimmed', 'x', message_id => 'm' || i) FROM generate_series(1, 30) i});
ok($standby->wait_until_sent, 'others come');
spread($standby, 'trimmed', 3);
is(past('trimmed'), 0, '... until all is gone that was sent before them');
spread($standby, 'trimmed', 1);
is(past('trimmed'), 1, '... and not longer');

# Somebody writes what no outbox does: not in digits, or so great that hardly an epoch is left.
my $number = 3;
foreach my $field ([ epoch => '1e300' ], [ epoch => '5e15' ], [ epoch => ' 7' ], [ epoch => '9007199254740991' ], [ epoch => '999999999999998' ],
	[ 'past:5e3', '1 1 -' ], [ partitions => 1_000_000_000 ], [ former => '' ], [ 'of:x:y', 'many' ], [ 'end:0', 'last' ])
{
	my ($name, $value) = @$field;
	spread($standby, 'spoiled', $number++);
	$redis->command('HSET', 'outbox:partitions:spoiled', $name, $value);
	$standby->sql("SELECT outbox_set_destination('spoiled', partitions => $number)");
	$standby->sql(q{SELECT outbox_enqueue('spoiled', 'x', key => 'k')});
	eventually { $standby->status('deferred') > 0 && $standby->sql(q{SELECT last_error FROM outbox.destinations WHERE dest = 'spoiled'}) =~ /field \Q$name\E of outbox:partitions:spoiled .*Delete that key/ } "$name '$value' is an error of its destination";
	$redis->command('DEL', 'outbox:partitions:spoiled');
	eventually { $standby->status('deferred') == 0 } '... which goes on when the key is gone';
	eventually { (layout('spoiled')->{partitions} // 0) == $number } '... and written again';
}
my $next = layout('spoiled')->{epoch};
cmp_ok($next, '<', 10**14, 'the epochs that follow are as if nothing had been there') or diag $next;
$standby->sql(q{SELECT outbox_enqueue('unspoiled', 'x')});
eventually { $redis->count('unspoiled') == 1 } 'others go on';

done_testing();
