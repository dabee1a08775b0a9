# PostgreSQL is restored to an earlier time: the fence in Redis names a window that this
# database has never opened, or has opened as another one.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use File::Path qw(rmtree);
use Outbox;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $redis = Redis->new;
# The log does not rotate meanwhile, however long that takes: all windows are in one table.
my $node = Outbox->create('main', redis => $redis, conf => "outbox.takeover_delay = '0s'\noutbox.replay_window = '1d'");

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
eventually { $node->sql('SELECT count(*) FROM outbox.problems') == 0 } '... and nothing is wrong';

# As if the window where it went on were no longer kept.
sub age_eras { $node->sql('UPDATE outbox.era SET went_on_after = -1 WHERE went_on_after IS NOT NULL'); return; }

age_eras();
redis_goes_back();
eventually { $redis->sequence('d') =~ /^\Q$before\E .*x y z$/ } 'if the log does not reach back to there, all that it has is sent';
like($node->log_since($log), qr/of an earlier era, whose end is no longer in the log; continuing after window/, '... and the log says so');

# A server takes over. Then Redis falls back to a state without its claim, and a batch
# of the old server arrives.
my $script = slurp_file(dirname(__FILE__) . '/../bgworker/connection/publish.lua');
my $key = $redis->key('fence');

sub save_redis { $redis->stop; $redis->save_data; $redis->start; return; }

sub late_batch
{
	my ($era) = @_;
	my $fence = $redis->command('GET', $key);
	my ($window, $uuid, $names, $id) = split / /, $fence;
	$names =~ s/^\w+/$era/ if $era;
	$window++;
	$uuid =~ s/^.{8}/ffffffff/;
	$id++;
	my $reply = $redis->command('EVAL', $script, 1, $key, $fence, '', 0,
		1, 'd', 1, 0, 'body', 'late', "$window/$uuid $id ", "$window $uuid $names $id");
	return $reply->[0];
}

enqueue('by the old');
ok(settle(), 'all is sent');
$node->stop('fast');
$node->backup_fs_cold('standby');
save_redis();
$before = $redis->sequence('d');
back_in_time('standby');
enqueue('v', 'w');
eventually { $redis->sequence('d') eq "$before v w" } 'another server takes over';
ok(settle(), '... and knows what it has sent');
$node->stop('fast');
redis_goes_back();
is(late_batch(), 1, 'a late batch of the old server arrives where the claim of the new one is lost');
$node->start;
eventually { $redis->sequence('d') eq "$before late v w" } '... and what is lost is sent again';
ok(settle(), 'all is sent');

# Long after that the database goes back in time, and Redis to the first history.
age_eras();
$node->stop('fast');
$node->backup_fs_cold('second');
$node->start;
enqueue('unknown');
ok(settle(), '... and one more');
back_in_time('second');
enqueue('p');
eventually { $redis->sequence('d') eq "$before late v w unknown p" } 'a database that went back again repeats nothing';
ok(settle(), '... and knows so');
$node->stop('fast');
redis_goes_back();
is(late_batch(), 1, 'Redis goes back to what the first server sent');
$node->start;
eventually { $redis->sequence('d') =~ /^\Q$before\E late .*\bv w .*p$/ } '... and gets all that the log has';

# The blocks of a volume are set back: the server does not change.
sub blocks_go_back
{
	my ($copy) = @_;
	my ($data, $backup) = ($node->data_dir, $node->backup_dir . "/$copy");
	$node->stop('fast');
	system_or_bail('sh', '-c', "find '$data' -mindepth 1 -maxdepth 1 ! -name outbox.server -exec rm -r {} + && cp -an '$backup/.' '$data' && chmod 700 '$data'");
	$node->start;
	return;
}

ok(settle(), 'all is sent');
$node->stop('fast');
$node->backup_fs_cold('blocks');
$node->start;
enqueue('unknown 2');
ok(settle(), 'one more is sent');
save_redis();
$before = $redis->sequence('d');
blocks_go_back('blocks');
enqueue('q');
eventually { $redis->sequence('d') eq "$before q" } 'a volume that is set back repeats nothing';
ok(settle(), '... and knows so');
is($node->sql('SELECT count(*) FROM outbox.era WHERE went_on_after IS NULL'), 1, '... and one era goes on');
redis_goes_back();
eventually { $redis->sequence('d') eq "$before q" } '... and what Redis loses of that is sent again';
ok(settle(), 'all is sent');

# Another server had the lease for a while, and sent only windows that both have.
$node->stop('fast');
$redis->command('SET', $key, $redis->command('GET', $key) =~ s/ \w+\./ 0badcafe./r);
save_redis();
$before = $redis->sequence('d');
$node->start;
enqueue('r');
ok(settle(), 'this one has the lease again');
$node->stop('fast');
redis_goes_back();
is(late_batch(), 1, 'a batch of the other one is late, where the claim of this one is lost');
$node->start;
eventually { $redis->sequence('d') eq "$before late r" } '... and what is lost is sent again';
ok(settle(), 'all is sent');

# Another server had claimed the fence, and what it sent first was still under way when this
# one got the lease back; so nothing but the claim tells of its era.
$node->stop('fast');
$redis->command('SET', $key, $redis->command('GET', $key) =~ s/\.\w+\./.0badc1a1./r);
save_redis();
$before = $redis->sequence('d');
$node->start;
enqueue('s');
ok(settle(), 'this one has the lease again');
$node->stop('fast');
redis_goes_back();
is(late_batch('0badc1a1'), 1, 'the first batch of the other one is late, where the claim of this one is lost');
$node->start;
eventually { $redis->sequence('d') eq "$before late s" } '... and what is lost is sent again';
done_testing();
