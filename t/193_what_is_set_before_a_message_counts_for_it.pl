# A message that is enqueued when a destination was paused is not sent, also where the dispatcher
# cannot read that the destination is paused when it has just found the message.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

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

pause_amid_a_lock();
done_testing();
