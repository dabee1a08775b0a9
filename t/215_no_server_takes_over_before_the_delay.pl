# A server takes over when no other one has published for outbox.takeover_delay: also one
# that has published itself before the other one did, also if it could not look
# meanwhile, and also if Redis would keep the lease for longer.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes qw(time sleep);

use constant LEASE_S => 10;    # how long a lease lives

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.takeover_delay = '1h'");
my $other = '0123456789abcdef.fedcba9876543210';

my $lease = 'outbox:lease:' . $node->sql('SELECT id FROM outbox.instance');
sub problem { my ($text) = @_; return $node->status('problem') =~ /$text/; }
sub enqueue { my ($body) = @_; $node->sql("SELECT outbox_enqueue('d', '$body')"); return; }

enqueue('1');
eventually { $redis->sequence('d') eq '1' } 'a server publishes';

# Another one publishes meanwhile, and dies.
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } '... until it is told not to';
$redis->command('SET', $lease, "$other host elsewhere, database 1, process 1");
$node->set('outbox.dispatch' => 'on');
eventually { problem('held by host elsewhere, database 1, process 1') } 'it finds the lease in other hands';
enqueue('2');
$redis->command('DEL', $lease);
eventually { problem('takes over after outbox.takeover_delay') } 'when that lease has expired it waits like any other server';
is($node->sql('SELECT publisher FROM outbox.instance'), $other, '... since another one has published');
my $first = $node->dispatcher;
kill 'TERM', $first;
eventually { $node->dispatcher != $first && problem('takes over after outbox.takeover_delay') } '... also with another dispatcher';
is($redis->sequence('d'), '1', '... and has sent nothing');

# Nothing is known of a time in which the lease was not looked at: another server may have
# published.
$redis->stop;
eventually { $node->status('redis_state') eq 'down' } 'Redis is away';
$node->set('outbox.takeover_delay' => (LEASE_S + 5) . 's');
sleep(LEASE_S + 2);
my $back = time;
$redis->start;
eventually { $redis->sequence('d') eq '1 2' } 'it takes over';
cmp_ok(time - $back, '>=', LEASE_S + 5, '... when Redis was back for outbox.takeover_delay');
is($node->sql("SELECT publisher = '$other' FROM outbox.instance"), 'f', '... and has noted that it publishes');

# So it knows its own lease again.
enqueue('3');
eventually { $redis->sequence('d') eq '1 2 3' } 'it goes on';
$node->set('outbox.takeover_delay' => '1h');
$node->restart;
enqueue('4');
eventually { $redis->sequence('d') eq '1 2 3 4' } '... also after a restart, without waiting';

# While the clock of Redis is behind the one by which a lease was written, the lease does not
# expire: the clock was set back, or a replica whose clock is behind has become the master. A
# client may also have taken its time to live away.
my $sequence = '1 2 3 4';
$node->set('outbox.takeover_delay' => '1s');
foreach my $life ([ 'PX', 3_600_000 ], [])
{
	my $kept = @$life ? 'for an hour' : 'for ever';

	$node->set('outbox.dispatch' => 'off');
	eventually { $node->status('dispatcher_state') eq 'off' } 'another server publishes, and dies';
	$redis->command('SET', $lease, "$other host elsewhere, database 1, process 1", @$life);
	enqueue('x');
	$node->set('outbox.dispatch' => 'on');
	$sequence .= ' x';
	eventually { $redis->sequence('d') eq $sequence } "... it takes over, though Redis would keep the lease $kept"
	  or last;
}
done_testing();
