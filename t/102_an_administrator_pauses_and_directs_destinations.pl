# outbox_pause(), outbox_resume() and outbox_set_destination(): what they do, and which
# arguments and roles they refuse.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

sub enqueue { my ($body, @dests) = @_; $node->sql("SELECT outbox_enqueue('$_', '$body')") foreach @dests; return; }

# One destination.
enqueue(1, 'a', 'b');
eventually { $redis->sequence('a') . $redis->sequence('b') eq '11' } 'messages pass';
$node->sql(q{SELECT outbox_pause('a')});
enqueue($_, 'a', 'b') foreach 2, 3;
eventually { $redis->sequence('b') eq '1 2 3' } 'the other destination goes on';
eventually { $node->status('deferred') == 2 } 'messages of a paused one wait';
is($redis->sequence('a'), '1', '... and are not sent');
is($node->sql('SELECT dest, paused, deferred, dead FROM outbox.destinations'), 'a|t|2|0', '... to be seen');
like($node->status('problem'), qr/^2 messages wait for a destination that is paused\. See outbox.destinations, then call outbox_resume\(\) with its name/, '... and explained');
$node->restart;
enqueue(4, 'a', 'b');
eventually { $redis->sequence('b') eq '1 2 3 4' } 'also after a restart the other one goes on';
eventually { $node->status('deferred') == 3 } '... and the paused one waits';
is($redis->sequence('a'), '1', '... unsent');
is($node->sql('SELECT max(attempts) FROM outbox.deferred'), 0, '... that is no attempt');
$node->sql(q{SELECT outbox_resume('a')});
enqueue(5, 'a');
eventually { $redis->count('a') == 5 } 'outbox_resume sends them';
ok($node->wait_until_sent, '... all');
is($redis->sequence('a'), '1 2 3 4 5', '... in order, none twice');
eventually { $node->status('problem IS NULL') eq 't' } '... nothing is wrong any more';

# An aborted call does nothing.
$node->sql(q{BEGIN; SELECT outbox_pause('a'); ROLLBACK});
enqueue(6, 'a');
eventually { $redis->count('a') == 6 } 'a pause that was rolled back is none';

# Everything.
$node->sql('SELECT outbox_pause()');
eventually { $node->status('dispatcher_state') eq 'paused' } 'everything is paused';
enqueue(7, 'a', 'b', 'c');
is($node->status('pending'), 3, 'messages wait');
like($node->status('problem'), qr/Everything is paused.*outbox_resume/, '... and problem says why');
$node->restart;
eventually { $node->status('dispatcher_state') eq 'paused' } '... also after a restart';
is($redis->sequence('b') . $redis->count('c'), '1 2 3 40', '... and nothing is sent');
$node->sql(q{SELECT outbox_pause('c'); SELECT outbox_resume()});
eventually { $redis->sequence('b') eq '1 2 3 4 7' } 'outbox_resume goes on';
eventually { $node->status('deferred') == 1 } '... but for the destination that has a pause of its own';
is($redis->count('c'), 0, '... of which nothing is sent');
$node->sql(q{SELECT outbox_resume('c')});
eventually { $redis->sequence('c') eq '7' } '... until that ends';
is($node->sql('SELECT count(*) FROM outbox_resume()'), 1, 'outbox_resume without a pause is nothing');

# Stream and length.
$node->sql(q{SELECT outbox_set_destination('a', 'stream of a', 100)});
enqueue('renamed', 'a');
eventually { $redis->sequence('stream of a') eq 'renamed' } 'a destination has a stream of another name';
is($redis->count('a'), 7, '... and the old one gets nothing');
is($node->sql(q{SELECT stream, maxlen, paused FROM outbox.destinations WHERE dest = 'a'}), 'stream of a|100|f', '... to be seen');
$node->sql(q{SELECT outbox_enqueue('a', i::text) FROM generate_series(1, 2000) i});
ok($node->wait_until_sent, 'many messages');
cmp_ok($redis->count('stream of a'), '<=', 300, '... are trimmed to the length, approximately');
is((($redis->bodies('stream of a'))[-1]), '2000', '... to the newest');
$node->sql(q{SELECT outbox_pause('a'); SELECT outbox_set_destination('a', reset => '{stream,maxlen}')});
enqueue('back', 'a');
eventually { $node->status('deferred') == 1 } 'the settings do not end a pause';
$node->sql(q{SELECT outbox_resume('a')});
eventually { $redis->count('a') == 8 } '... and without them its name is the stream again';

# A superuser deletes what waits, and the dispatcher waits for it no more.
foreach my $statement (q{DELETE FROM outbox.deferred WHERE dest = 'emptied'}, 'TRUNCATE outbox.deferred')
{
	$redis->refuse('emptied');
	$node->sql(q{SELECT outbox_enqueue('emptied', 'deleted') FROM generate_series(1, 3)});
	eventually { $node->status('deferred') == 3 } 'messages wait';

	# Those that are just being tried again are deferred once more.
	eventually { $node->sql($statement); $node->status('deferred') == 0 } "... not after $statement";
	$redis->accept('emptied');
	$node->sql(q{SELECT outbox_enqueue('emptied', 'new')});
	eventually { $redis->count('emptied') == 1 } '... and keep no other back';
	$redis->command('DEL', 'emptied');
}

# Bad input.
my $long = "repeat('x', 1025)";
foreach my $case (
	[ q{outbox_set_destination(NULL)}, '22004' ], [ q{outbox_set_destination('')}, '22023' ],
	[ "outbox_set_destination($long)", '22001' ], [ q{outbox_set_destination('outbox:x')}, '42939' ],
	[ q{outbox_set_destination('a', '')}, '22023' ], [ "outbox_set_destination('a', $long)", '22001' ],
	[ q{outbox_set_destination('a', 'outbox:fence:x')}, '42939' ], [ q{outbox_set_destination('a', NULL, -1)}, '22023' ],
	[ q{outbox_set_destination('a', reset => '{paused}')}, '22023' ],
	[ q{outbox_pause('')}, '22023' ], [ q{outbox_resume('')}, '22023' ], [ "outbox_pause($long)", '22001' ],
	[ q{outbox_discard(NULL, 'x')}, '22004' ], [ q{outbox_discard('', 'x')}, '22023' ], [ q{outbox_discard('a', NULL)}, '22004' ],
	[ q{outbox_replay(NULL)}, '22004' ])
{
	my ($call, $state) = @$case;
	like($node->sql_error("SELECT $call"), qr/^$state/, $call);
}
is($node->sql(q{SELECT outbox_retry('none'), outbox_discard('none', 'none')}), '0|0', 'nothing to retry or discard');

# Who may.
$node->sql('CREATE ROLE admin; CREATE ROLE app; CREATE ROLE monitor;'
	. "SELECT outbox_grant('admin', 'admin'), outbox_grant('app'), outbox_grant('monitor', 'monitor')");
my @calls = (q{outbox_pause('r')}, q{outbox_resume('r')}, q{outbox_pause()}, q{outbox_resume()}, q{outbox_set_destination('r', 's', 5)},
	q{outbox_retry()}, q{outbox_discard('r', 'x')}, q{outbox_replay(now())});
foreach my $call (@calls)
{
	is($node->sql("SET ROLE admin; SELECT count(*) FROM $call"), 1, "an admin may $call");
	like($node->sql_error("SET ROLE $_; SELECT $call"), qr/^42501/, "... role $_ may not") foreach 'app', 'monitor';
}
is($node->sql("SET ROLE $_; SELECT count(*) > 0 FROM outbox.destinations"), 't', "role $_ sees outbox.destinations") foreach 'admin', 'monitor';
is($node->sql('SET ROLE admin; SELECT count(*) FROM outbox.dead_letters'), 0, 'an admin sees outbox.dead_letters');
like($node->sql_error('SET ROLE monitor; SELECT * FROM outbox.dead_letters'), qr/^42501/, '... a monitor, which may see no body, does not');
like($node->sql_error("SET ROLE app; SELECT * FROM outbox.$_"), qr/^42501/, "role app does not see $_") foreach 'dead_letters', 'destinations';
like($node->sql_error("SET ROLE admin; SELECT * FROM outbox.$_"), qr/^42501/, "an admin cannot read table $_") foreach 'deferred', 'destination';
like($node->sql_error("SET ROLE admin; UPDATE outbox.destination SET paused = true"), qr/^42501/, '... nor write it');

done_testing();
