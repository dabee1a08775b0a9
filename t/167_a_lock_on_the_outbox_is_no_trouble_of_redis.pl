# While somebody waits for the lock by which the extension is dropped, or has it, the dispatcher
# begins no transaction. Redis is not blamed for that: there is no such problem, nor a line in the
# log, unless Redis cannot be used either. When the lock is given up, messages are sent as before.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $sent = 0;

# Returns when the dispatcher has connected to Redis some times more.
sub connects_in_vain
{
	my $connections = sub { return $redis->command('INFO', 'stats') =~ /total_connections_received:(\d+)/ ? $1 : die 'Redis counts no connections'; };
	my ($looks, $before) = (0, $connections->());

	# Each look is a connection, too.
	return wait_until { $connections->() - $before - ++$looks > 3 };
}

# Breaks the link of the dispatcher.
sub break { return $redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'); }

sub log_blames_redis { my ($since) = @_; return $node->log_since($since) =~ /Redis cannot be used/; }

$node->sends($redis, ++$sent, 'a message is sent');
my $dispatcher = $node->dispatcher;

# This session has used the outbox, so DROP EXTENSION waits for it; and it may look into the views.
my $user = $node->session;
my $problems = sub { return $user->query_safe(q{SELECT string_agg(kind || ': ' || problem, '; ') FROM outbox.problems}); };
$user->query_safe(q{BEGIN; SELECT outbox_enqueue('d', 'x')});
$sent++;
my $dropper = $node->session;
my $pid = $dropper->query_safe('SELECT pg_backend_pid()');
my $log = $node->log_position;
$dropper->query_until(qr/begun/, "\\echo begun\nDROP EXTENSION outbox;\n");
ok($node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = $pid AND relation = 'outbox.instance'::regclass}),
	'DROP EXTENSION waits');
break();
ok(connects_in_vain(), 'the dispatcher loses its link meanwhile, and connects');
eventually { $problems->() eq '' } '... which is no problem of Redis';
ok(!log_blames_redis($log), '... nor does the log say so');

# What Redis is to blame for is said all the same.
$redis->stop;
eventually { $problems->() =~ /^redis down: Redis cannot be used, so messages wait: could not connect/ } 'Redis is away';
ok(log_blames_redis($log), '... which the log says');
$redis->start;
$node->sql("SELECT pg_cancel_backend($pid)");
$dropper->query('SELECT 1');
$dropper->{stderr} = '';
$user->query_safe('COMMIT');
eventually { $redis->count('d') == $sent } 'DROP EXTENSION is cancelled: messages are sent';
eventually { $node->status('problem') eq '' } '... and nothing is wrong';
like($node->log_since($log), qr/Redis can be used again/, '... as the log says');

# Whoever has the lock gives it up after a while.
$log = $node->log_position;
foreach my $statement ('DROP EXTENSION outbox', 'LOCK TABLE outbox.instance')
{
	$dropper->query_safe("BEGIN; $statement");
	break();
	ok(connects_in_vain(), "$statement: the dispatcher connects");
	$dropper->query_safe('ROLLBACK');
	$node->sends($redis, ++$sent, '... and sends when that is rolled back');
}
$_->quit foreach $dropper, $user;
ok(!log_blames_redis($log), 'the log has not blamed Redis');
unlike($node->log_since($log), qr/Redis can be used again/, '... so it need not take that back');
is($node->dispatcher, $dispatcher, 'the dispatcher is still the same');

# A table is rewritten now and then under load.
my $load = $node->start_load(clients => 2, rate => 200, scripts => ["SELECT outbox_enqueue('load', 'x');\n"]);
foreach (1 .. 30)
{
	my $count = $redis->count('load');

	$node->sql('VACUUM FULL outbox.instance');
	wait_until { $redis->count('load') > $count } or last;
}
$load->stop;
$node->wait_until_sent;
ok(!log_blames_redis($log), 'VACUUM FULL under load: the log has not blamed Redis');

done_testing();
