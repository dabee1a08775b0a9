# Redis comes back as it was some time ago, or is emptied while the dispatcher's
# connection stays open. What it lost is sent again from the log; what it kept is not.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my @streams = ('a', 'b', 'c');
my $redis = Redis->new(config => [ '--appendonly', 'no' ]);
my $node = Outbox->create('main', redis => $redis);
my $sent = 0;

# Enqueues each message for each stream.
sub enqueue
{
	my ($count) = @_;
	my $first = $sent + 1;

	$sent += $count;
	$node->sql("SELECT outbox_enqueue(s, i::text) FROM generate_series($first, $sent) i, unnest('{@{[ join ',', @streams ]}}'::text[]) s");
	return;
}

sub all_is_there
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { 0 == grep { $redis->count($_) < $sent } @streams } $name;
	ok($node->wait_until_sent, '... and is known to be');
	is($redis->sequence($_), join(' ', 1 .. $sent), "... $_: in order, none twice") foreach @streams;
	return;
}

enqueue(10);
all_is_there('messages arrive');

# The first window of all has the number 0. In a cluster a fence is put there before the first
# message of its slot is sent; Redis may go back to that.
my $fence = $redis->key('fence');
my $uuid = $node->sql('SELECT uuid FROM outbox.window_0 WHERE number = 0');
my $era = $node->sql('SELECT id FROM outbox.era WHERE went_on_after IS NULL');
my $log = $node->log_position;
$redis->command('DEL', @streams);
$redis->command('SET', $fence, "0 $uuid $era.$era.0 0");
all_is_there('a Redis that goes back to the first window gets everything again');
unlike($node->log_since($log), qr/never opened/, '... as that window was opened here');

# An older RDB, as after a crash between two of them.
$redis->cli('SAVE');
enqueue(1) foreach 1 .. 20;
all_is_there('more arrive');
$log = $node->log_position;
$redis->kill9;
$redis->start;
all_is_there('Redis comes back with an older RDB');
unlike($node->log_since($log), qr/has no fence|never opened|older than the windows/, '... which is no reason to complain');

# The dispatcher does not see that Redis was away: it is idle.
$redis->cli('SAVE');
enqueue(700);
all_is_there('a long window arrives');
$redis->kill9;
$redis->start;
all_is_there('it is lost while nothing is sent');

# Only the fence goes back: what is behind it may be sent again.
my $value = $redis->command('GET', $fence);
my $kept = $sent;
enqueue(5);
all_is_there('five more arrive');
$redis->command('SET', $fence, $value);
enqueue(1);
eventually { 0 == grep { $redis->count($_) < $sent + 5 } @streams } 'a fence that went back is noticed with the next message';
ok($node->wait_until_sent, '... for good');
is($redis->sequence($_), join(' ', 1 .. $sent - 1, $kept + 1 .. $sent), "... $_: only what came after it repeats") foreach @streams;

# FLUSHALL, with nothing to send: it is noticed when the lease is renewed.
$log = $node->log_position;
$redis->cli('FLUSHALL');
all_is_there('FLUSHALL behind an idle connection is noticed');
like($node->log_since($log), qr/Redis has no fence of this database; sending again all/, '... and the log says so');

# FLUSHALL: it is noticed with the next message.
$redis->cli('FLUSHALL');
enqueue(1);
all_is_there('FLUSHALL before a message');

# Only some keys are deleted.
$redis->cli('DEL', $fence, $streams[0]);
enqueue(1);
eventually { $redis->count($streams[0]) >= $sent } 'a fence that was deleted';
is($redis->sequence($streams[0]), join(' ', 1 .. $sent), '... makes everything be sent again');
$redis->cli('FLUSHALL');
all_is_there('and once more');

# Others may write anything to the fence: what is none of ours counts as none.
my $dispatcher = $node->dispatcher;
foreach my $foreign ('9', '9 ------------------------------------ a.b 3', '9 0123456789abcdef0123456789abcdef01234567 a.b 3')
{
	$log = $node->log_position;
	$redis->command('DEL', @streams);
	$redis->command('SET', $fence, $foreign);
	all_is_there("a fence that says \"$foreign\" makes everything be sent again");
	like($node->log_since($log), qr/Redis has no fence of this database; sending again all/, '... as the log says');
}
is($node->dispatcher, $dispatcher, 'the dispatcher survives that');

# What the log does not keep any more cannot be sent.
$node->set('outbox.redis_data_loss' => 'resume');
$log = $node->log_position;
$redis->cli('FLUSHALL');
eventually { $node->log_since($log) =~ /Redis has no fence of this database; continuing after window \d+ because "outbox.redis_data_loss" is "resume"/ }
'with outbox.redis_data_loss = resume an idle connection notices, too';
enqueue(2);
ok($node->wait_until_sent, '... dispatch goes on');
is($redis->sequence($_), join(' ', $sent - 1, $sent), "... $_: with what is new only") foreach @streams;
$redis->cli('FLUSHALL');
enqueue(3);
ok($node->poll_query_until('postgres', 'SELECT pending = 0 FROM outbox.status'), 'noticed with a message');
is($redis->sequence($_), join(' ', $sent - 2 .. $sent), "... $_: that is sent, whole") foreach @streams;

done_testing();
