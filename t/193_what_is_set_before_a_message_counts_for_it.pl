# A message that is enqueued when a destination was paused is not sent, also where the dispatcher
# cannot read that the destination is paused when it has just found the message, or has found it
# while Redis refuses another one.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use RedisCluster;
use Test::More;
use Time::HiRes qw(usleep);

my $paused = q{SELECT deferred FROM outbox.destinations WHERE dest = 'paused'};

sub waits_for_lock { my ($node, $pid) = @_; return $node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = $pid"); }

# The table that is locked first to read anything is locked by another session just then.
sub pause_amid_a_lock
{
	my $redis = Redis->new;
	my $proxy = Proxy->new($redis);
	my $node = Outbox->create('main', conf => "outbox.redis_url = '@{[ $proxy->url ]}'");
	my $windows = $node->sql(q{SELECT string_agg('outbox.window_' || segment, ', ') FROM outbox.ring WHERE ring = 'log'});
	my ($holder, $locker) = ($node->session, $node->session);
	my $pid = $locker->query_safe('SELECT pg_backend_pid()');

	$node->sends($redis, 1, 'a message is sent');
	my $opened = $proxy->opened;
	$redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	$redis->pause;
	$node->sql(q{SELECT outbox_enqueue('other', 'x')});
	eventually { $proxy->opened > $opened } 'the dispatcher connects once more';
	$node->sql(q{SELECT outbox_pause('paused')});
	$node->sql(q{SELECT outbox_enqueue('paused', 'x')});
	$holder->query_safe("BEGIN; LOCK TABLE $windows IN SHARE MODE");
	$redis->kill9;
	ok(waits_for_lock($node, $node->dispatcher), '... which fails, and it finds what was enqueued meanwhile');
	$locker->query_until(qr/begun/, "\\echo begun\nBEGIN; LOCK TABLE outbox.instance;\n");
	ok(waits_for_lock($node, $pid), '... and cannot begin another transaction after that');
	$redis->start;
	$redis->pause;
	$opened = $proxy->opened;
	$holder->query_safe('COMMIT');
	eventually { $proxy->opened > $opened } '... when it connects';
	$locker->query_safe('COMMIT');
	$redis->resume;
	eventually { $redis->count('other') == 1 && $node->sql($paused) eq '1' } 'what is for another destination is sent';
	is($redis->count('paused'), 0, '... and what was enqueued after the pause is not');
	$_->quit foreach $holder, $locker;
	$node->stop;
	return;
}

# A window is opened while a distant Redis is about to refuse a batch as a whole.
sub pause_amid_a_refusal
{
	my $cluster = RedisCluster->new(masters => 1, replicas => 0);
	my $redis = $cluster->node(0);
	my $proxy = Proxy->new($redis);

	$redis->command('CONFIG', 'SET', 'cluster-announce-port', $proxy->port);
	eventually { $redis->command('CLUSTER', 'SLOTS')->[0][2][1] == $proxy->port } 'the node announces the proxy';
	$redis->command('ACL', 'SETUSER', 'sender', 'on', '>secret', '+@all', '~outbox:*', '~{a}:*', '~paused');
	my $node = Outbox->create('clustered', redis => $cluster, conf => <<"END");
outbox.redis_url = 'redis+cluster://sender:secret\@127.0.0.1:@{[ $proxy->port ]}'
outbox.retry_delay = '1h'
outbox.retry_max_delay = '1h'
END

	$node->sql(q{SELECT outbox_enqueue(d, 'x') FROM unnest(ARRAY['{a}:first', 'paused']) d});
	ok($node->wait_until_sent, 'messages are sent');
	$proxy->delay(1000);
	$redis->command('CLIENT', 'KILL', 'USER', 'sender');
	$node->sql(q{SELECT outbox_enqueue('{a}:first', 'x')});
	ok($node->wait_until_sent, '... also over a distance');
	$redis->command('ACL', 'SETUSER', 'sender', 'resetkeys', '~outbox:*', '~{a}:first', '~paused');
	my $session = $node->session;
	eventually { $proxy->most_under_way; usleep(500_000); $proxy->most_under_way == 0 } '... and nothing is under way';
	$session->query_safe(q{SELECT outbox_enqueue('{a}:forbidden', 'x')});
	eventually { $proxy->most_under_way > 0 } 'one is about to be refused';
	$session->query_safe(q{SELECT outbox_pause('paused')});
	$session->query_safe(q{SELECT outbox_enqueue('paused', 'x')});
	eventually { $node->sql($paused) eq '1' } 'another one is found meanwhile, whose destination is paused';
	eventually { $node->sql(q{SELECT deferred FROM outbox.destinations WHERE dest = '{a}:forbidden'}) eq '1' } '... the first one is refused';
	$proxy->pass;
	is($redis->count('paused'), 1, '... and the other one not sent');
	$node->sql(q{SELECT outbox_resume('paused')});
	eventually { $redis->count('paused') == 2 } '... until that is over';
	$session->quit;
	return;
}

pause_amid_a_lock();
pause_amid_a_refusal();
done_testing();
