# An administrator gives deferred messages a destination whose name is longer than any that
# outbox_enqueue() takes: they are sent there, and so are the messages for others.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $dispatcher = $node->dispatcher;
my $long = 'x' x 1100;

$node->sql(q{SELECT outbox_pause('p')});
$node->sql(q{SELECT outbox_enqueue('p', i::text) FROM generate_series(1, 3) i});
eventually { $node->status('deferred') == 3 } 'messages are deferred';
$node->sql("UPDATE outbox.deferred SET dest = '$long'");
eventually { $redis->count($long) == 3 } '... and sent to a destination that an administrator has given them';
is_deeply([ $redis->bodies($long) ], [ 1 .. 3 ], '... in order');
$node->sql(q{SELECT outbox_enqueue('other', 'x')});
eventually { $redis->count('other') == 1 } '... as messages for others are';
is($node->dispatcher, $dispatcher, '... by the same dispatcher');

done_testing();
