# PostgreSQL is restored to an earlier time: the fence in Redis names a window that this
# database has never opened, or has opened as another one.

use strict;
use warnings FATAL => 'all';

use File::Path qw(rmtree);
use Outbox;
use PostgreSQL::Test::RecursiveCopy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.takeover_delay = '0s'");

sub enqueue { my (@bodies) = @_; $node->sql("SELECT outbox_enqueue('d', '$_')") foreach @bodies; return; }

# Waits until the tables show that all is sent.
sub settle
{
	return $node->poll_query_until('postgres', q{SELECT published = number FROM outbox.window_0 ORDER BY number DESC LIMIT 1})
	  && $node->wait_until_sent;
}

sub back_in_time
{
	my ($copy) = @_;
	$node->stop('fast');
	rmtree($node->data_dir);
	PostgreSQL::Test::RecursiveCopy::copypath($node->backup_dir . "/$copy", $node->data_dir);
	chmod 0700, $node->data_dir or die "chmod: $!";
	my $log = $node->log_position;
	$node->start;
	return $log;
}

enqueue(1 .. 3);
eventually { $redis->sequence('d') eq '1 2 3' } 'messages arrive';
ok(settle(), '... and are known to be');
$node->stop('fast');
$node->backup_fs_cold('sent');
$redis->stop;
$node->start;
enqueue('pending');
eventually { $node->status('redis_state') eq 'down' } 'one waits for Redis';
$node->stop('fast');
$node->backup_fs_cold('pending');
$node->start;
enqueue(4 .. 9);
$redis->start;
eventually { $redis->sequence('d') eq '1 2 3 pending 4 5 6 7 8 9' } 'more arrive';

# Back to the time before all this.
my $log = back_in_time('sent');
eventually { $node->log_since($log) =~ /the fence in Redis names window \d+, which this database never opened; continuing after window \d+/ }
'a database that went back finds a fence that it does not know';
like($node->log_since($log), qr/restored to an earlier time/, '... and the log says why');
enqueue('a');
eventually { $redis->sequence('d') eq '1 2 3 pending 4 5 6 7 8 9 a' } 'a new message goes out, what was sent before does not';
enqueue('b');
eventually { $redis->sequence('d') eq '1 2 3 pending 4 5 6 7 8 9 a b' } '... and the next one';

# As many windows are opened as there were: the number is known, but the window is another one.
ok(settle(), 'all is noted');
$log = back_in_time('sent');
$redis->stop;
enqueue(map { "c$_" } 1 .. 20);
$redis->start;
eventually { $redis->count('d') == 32 } 'a database that has opened as many windows again';
is($redis->sequence('d'), join(' ', '1 2 3 pending 4 5 6 7 8 9 a b', map { "c$_" } 1 .. 20), '... skips none of them and repeats nothing');
like($node->log_since($log), qr/which this database never opened/, '... and the log says so');

# What was pending at that time is sent, for it is not known that it was sent later.
back_in_time('pending');
enqueue('last');
eventually { ($redis->sequence('d') =~ /last$/) } 'what was pending is sent again';
is($redis->sequence('d'), join(' ', '1 2 3 pending 4 5 6 7 8 9 a b', (map { "c$_" } 1 .. 20), 'pending last'), '... before what is new, and nothing else');
ok($node->wait_until_sent, 'all is sent');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# Redis falls back to before all that this database has sent, and to an earlier window that it never opened.
sub redis_goes_back
{
	$redis->stop;
	$redis->restore_data;
	$redis->start;
	return;
}

my $before = $redis->sequence('d');
$redis->stop;
$redis->save_data;
$redis->start;
enqueue('lost');
ok($node->wait_until_sent, 'Redis has a message more than was saved of it');
$log = back_in_time('sent');
enqueue('x');
enqueue('y');
eventually { $redis->sequence('d') eq "$before lost x y" } 'a database that went back sends on';
ok(settle(), '... and knows so');
$node->stop('fast');
redis_goes_back();
$node->start;
eventually { $redis->sequence('d') eq "$before x y" } 'what Redis loses of that is sent again, by another dispatcher';
enqueue('z');
ok($node->wait_until_sent, '... and so is what is new');
redis_goes_back();
eventually { $redis->sequence('d') eq "$before x y z" } '... also when Redis goes back once more';
is($node->sql('SELECT count(*) FROM outbox.problems'), 0, '... and nothing is wrong');

# As if the window where it went on were no longer kept.
$node->sql('UPDATE outbox.instance SET went_on_after = -1');
redis_goes_back();
eventually { $redis->sequence('d') =~ /^\Q$before\E .*x y z$/ } 'if the log does not reach back to there, all that it has is sent';
like($node->log_since($log), qr/went on after a window that is no longer kept; continuing after window/, '... and the log says so');

done_testing();
