# A stream that the ACL forbids, or whose last id is used up, refuses what is added. That
# holds up its own destination only. A right that the dispatcher itself lacks holds up all.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new(tcp => 1);
my @keys = ('~good', '~full', '~outbox:*');
$redis->command('ACL', 'SETUSER', 'sender', 'on', '>secret', @keys, '+@all');
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $redis->tcp_url('sender:secret@') . "'\noutbox.command_timeout = '60s'");

sub enqueue { my ($body, @dests) = @_; $node->sql("SELECT outbox_enqueue('$_', '$body')") foreach @dests; return; }
sub last_error { return $node->sql("SELECT last_error FROM outbox.destinations WHERE dest = '$_[0]'"); }

wait_until { $node->status('redis_state') eq 'up' };
my $link = $redis->newest_connection_of('sender');
enqueue($_, 'forbidden', 'good') foreach 1 .. 3;
eventually { $redis->sequence('good') eq '1 2 3' } 'a forbidden stream does not stop another one';
eventually { $node->status('deferred') == 3 } 'its own messages wait';
eventually { last_error('forbidden') =~ /(?:can't access at least one of the keys|[Nn]o permissions? to access a key|NOPERM)/ } '... with what Redis said';
is($node->status('redis_state'), 'up', '... Redis is not to blame');
ok($node->poll_query_until('postgres', 'SELECT max(attempts) > 2 FROM outbox.deferred'), '... they are tried again and again');
is($redis->count('forbidden'), 0, '... in vain');
is($redis->newest_connection_of('sender'), $link, '... over the same connection');
$redis->command('ACL', 'SETUSER', 'sender', '~forbidden');
eventually { $redis->count('forbidden') == 3 } 'with the right they arrive';
ok($node->wait_until_sent, '... for good');
is($redis->sequence('forbidden') . ', ' . $redis->sequence('good'), '1 2 3, 1 2 3', '... in order, none twice');

# The last possible id.
$redis->command('XADD', 'full', '18446744073709551615-18446744073709551615', 'last', 'one');
enqueue($_, 'full', 'good') foreach 4, 5;
eventually { $redis->sequence('good') eq '1 2 3 4 5' } 'a stream without another id does not stop another one';
eventually { $node->status('deferred') == 2 } 'its own messages wait';
eventually { last_error('full') =~ /exhausted/ } '... with what Redis said';
$redis->command('DEL', 'full');
eventually { $redis->count('full') == 2 } 'created again it gets them';
ok($node->wait_until_sent, '... for good');
is($redis->sequence('full') . ', ' . $redis->sequence('good'), '4 5, 1 2 3 4 5', '... in order, none twice');

# Without rights to the dispatcher's own keys, or to run the script, nothing can be sent;
# no attempt of any message is counted.
foreach my $rights ([ [ 'resetkeys', '~good' ], [@keys] ], [ ['-evalsha'], ['+@all'] ], [ ['-xadd'], ['+@all'] ], [ [ '-set' ], ['+@all'] ])
{
	my ($taken, $given) = @$rights;
	my $count = $redis->count('good');
	$redis->command('ACL', 'SETUSER', 'sender', @$taken);
	enqueue("without @$taken", 'good');
	eventually { $node->status('redis_state') eq 'down' } "@$taken: Redis cannot be used";
	is($node->sql('SELECT count(*) FROM outbox.deferred WHERE state = $$waiting$$'), 0, '... no attempt is counted');
	$redis->command('ACL', 'SETUSER', 'sender', @$given);
	eventually { $redis->count('good') == $count + 1 } '... given back, dispatch goes on';
	ok($node->wait_until_sent, '... for good');
}
is($redis->count('good'), 9, 'none came twice');

# Each connection finds the same fence, or none, until something is sent.
sub connections { my ($n) = $redis->command('INFO', 'stats') =~ /total_connections_received:(\d+)/; return $n; }
$redis->command('ACL', 'SETUSER', 'sender', '-xadd');
$redis->command('FLUSHALL');
my $log = $node->log_position;
my $connections = connections();
enqueue('after a loss', 'good');
eventually { connections() > $connections + 15 } 'it connects again and again';
is(scalar(() = $node->log_since($log) =~ /Redis has no fence/g), 1, '... and the log tells once what it finds');
$redis->command('ACL', 'SETUSER', 'sender', '+@all', '~forbidden');
eventually { $redis->count('good') == 10 } '... until it sends what was lost';
ok($node->wait_until_sent, '... all of it');

# The user is disabled.
$redis->command('ACL', 'SETUSER', 'sender', 'off');
$redis->command('CLIENT', 'KILL', 'USER', 'sender');
enqueue('off', 'good');
eventually { $node->status('redis_error') =~ /WRONGPASS/ } 'a user that is switched off';
$redis->command('ACL', 'SETUSER', 'sender', 'on');
eventually { $redis->count('good') == 11 } '... and on again';
is($node->sql('SELECT count(*) FROM outbox.deferred WHERE state = $$waiting$$'), 0, '... nothing was deferred');

done_testing();
