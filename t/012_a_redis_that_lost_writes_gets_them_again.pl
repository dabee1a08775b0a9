# Redis may come back without what it acknowledged last, or empty: the fence shows that,
# and the log still has what was lost.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $sent = 0;

sub enqueue
{
	my ($count) = @_;
	foreach (1 .. $count)
	{
		$sent++;
		$node->sql("SELECT outbox_enqueue('d', '$sent', message_id => 'id $sent')");
	}
	return wait_until { $redis->count('d') >= $sent };
}

enqueue(5);
$redis->stop;
$redis->save_data;
$redis->start;
enqueue(5);
$redis->kill9;
$redis->restore_data;
$redis->start;
eventually { $redis->count('d') == 10 } 'what Redis lost is sent again';
is(join(' ', map { $_->{id} } $redis->entries('d')), join(' ', map { "id $_" } 1 .. 10), '... in order and none twice');
enqueue(5);
is($redis->sequence('d'), join(' ', 1 .. 15), '... and dispatch goes on');

# Redis loses the end of a window: entries and fence go back together.
$redis->stop;
$redis->save_data;
$redis->start;
$node->sql(q{SELECT count(outbox_enqueue('d', i::text)) FROM generate_series(16, 3015) i});
eventually { $redis->count('d') == 3015 } 'a window of many batches is sent';
$redis->stop;
my ($file) = glob "$redis->{folder}/data/appendonlydir/*.incr.aof";
truncate $file, int((-s $file) * 2 / 3) or die "could not truncate $file: $!";
$redis->start;
eventually { $redis->count('d') == 3015 } 'its lost end is sent again';
is($redis->sequence('d'), join(' ', 1 .. 3015), '... in order and none twice');

# Redis comes back empty.
$sent = 3015;
$redis->stop;
$redis->lose_data;
$redis->start;
eventually { $redis->count('d') == 3015 } 'an empty Redis gets all that the log still has';
is($redis->sequence('d'), join(' ', 1 .. 3015), '... in order and none twice');
eventually { $node->status('pending = 0 AND problem IS NULL') eq 't' } 'nothing waits and nothing is wrong';

# Redis is emptied while the connection stays open.
$redis->cli('FLUSHALL');
$node->sql(q{SELECT outbox_enqueue('d', '3016')});
eventually { $redis->count('d') == 3016 } 'FLUSHALL is noticed';
is($redis->sequence('d'), join(' ', 1 .. 3016), '... and answered by the log');

# The setting says not to send it again.
$node->set('outbox.redis_data_loss' => 'resume');
$redis->stop;
$redis->lose_data;
$node->sql(q{SELECT outbox_enqueue('d', '3017')});
$redis->start;
eventually { $redis->count('d') > 0 } 'with outbox.redis_data_loss = resume';
$node->sql(q{SELECT outbox_enqueue('d', '3018')});
$node->wait_until_sent;
is($redis->sequence('d'), '3017 3018', '... only what was not sent yet is sent');

done_testing();
