# Ids of outgoing messages are not compared: two messages with the same message_id are
# sent, lost, refused, discarded, retried and replayed as two messages.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.max_attempts = 2\noutbox.batch_size = 2");
my $after = 0;

sub enqueue { my ($dest, @bodies) = @_; $node->sql(join ';', map { "SELECT outbox_enqueue('$dest', '$_', message_id => 'twin')" } @bodies); return; }

# What a stream has when all that was enqueued before is sent.
sub stream
{
	my ($stream) = @_;
	$after++;
	$node->sql("SELECT outbox_enqueue('after', '$after')");
	$node->wait_until_sent;
	return join ' ', map { "$_->{id} $_->{body}" } $redis->entries($stream);
}

# In one transaction, in two, and for two streams.
$node->sql(q{BEGIN; SELECT outbox_enqueue('d', '1', message_id => 'twin'); SELECT outbox_enqueue('d', '2', message_id => 'twin'); COMMIT});
enqueue('d', 3);
enqueue('e', 4);
is(stream('d'), 'twin 1 twin 2 twin 3', 'messages of one id are all sent, in order');
is(stream('e'), 'twin 4', '... to each stream its own');
$redis->cli('FLUSHALL');
is(stream('d'), 'twin 1 twin 2 twin 3', 'what Redis lost is sent again, all of it')
  if eventually { $redis->count('d') == 3 } 'Redis is emptied';
is(stream('e'), 'twin 4', '... once');

# When they are refused, one waits behind the other; each dies after its own attempts.
$redis->refuse('bad', 'worse');
enqueue('bad', 5, 6);
enqueue('worse', 7);
eventually { $node->status('dead') == 3 } 'refused messages of one id die, each of them';
is($node->sql(q{SELECT string_agg(convert_from(body, 'UTF8') || ' ' || attempts, ', ' ORDER BY body) FROM outbox.dead_letters WHERE dest = 'bad'}), '5 2, 6 2', '... after its own attempts');
$redis->accept('bad');
is($node->sql(q{SELECT outbox_retry('bad', 'twin')}), 2, 'outbox_retry tries both again');
eventually { $redis->count('bad') == 2 } '... which arrive';
is(stream('bad'), 'twin 5 twin 6', '... once, in order');
is($node->status('dead'), 1, '... that of another destination stays dead');

$redis->cli('DEL', 'bad');
$redis->refuse('bad');
enqueue('bad', 8, 9);
eventually { $node->status('dead') == 3 } 'two more die';
is($node->sql(q{SELECT outbox_discard('bad', 'twin')}), 2, 'outbox_discard gives up both');
eventually { $node->status('dead') == 1 } '... and not that of another destination';
$redis->accept('bad', 'worse');
is($node->sql('SELECT outbox_retry()'), 1, 'that one is tried again');
eventually { $redis->count('worse') == 1 } '... and arrives';
enqueue('bad', 10);
is(stream('bad'), 'twin 10', 'what was discarded is not sent; a new message of that id is');

# outbox_replay() sends them once more.
is($node->sql(q{SELECT outbox_replay(now() - interval '1 hour', 'd')}), 3, 'outbox_replay takes all three');
eventually { $redis->count('d') == 6 } '... and sends them';
is(stream('d'), 'twin 1 twin 2 twin 3 twin 1 twin 2 twin 3', '... in order');

done_testing();
