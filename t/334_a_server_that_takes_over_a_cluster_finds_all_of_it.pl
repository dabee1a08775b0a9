# Two servers take themselves for the same database and publish to one Redis Cluster, one
# after the other. What the stale one has sent to a slot that the other does not know, and
# arrives late, is refused, and the other finds what its own database has sent.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $old = Outbox->create('old', redis => $cluster, init => { allows_streaming => 1 });
my ($unknown) = grep { $cluster->index_of($_) != $cluster->index_of('known') } map { "unknown:$_" } 1 .. 20;
my $script = slurp_file(dirname(__FILE__) . '/../bgworker/publish/publish.lua');

sub enqueue { my ($node, $stream, $body) = @_; $node->sql("SELECT outbox_enqueue('$stream', '$body')"); return; }

# The fence of the slot of a stream, and its value.
sub fence
{
	my ($stream) = @_;
	my $node = $cluster->node_of($stream);
	my $slot = $cluster->slot_of($stream);
	my ($key) = grep { $cluster->slot_of($_) == $slot } @{ $node->command('KEYS', 'outbox:fence:*{*}') };
	return ($key, $node->command('GET', $key));
}

# A batch with one message on top of a value of the fence. Returns the number of messages that it added, or the error.
sub late_batch
{
	my ($stream, $key, $builds_on) = @_;
	my ($window, $uuid, $connection, $id) = split / /, $builds_on;
	my $reply = eval {
		$cluster->node_of($stream)->command('EVAL', $script, 2, $key, $stream, $builds_on, '', 0,
			1, $stream, 1, 0, 'body', 'late', "$window/$uuid " . ($id + 1) . ' ', "$window $uuid $connection " . ($id + 1));
	};
	return $reply ? $reply->[0] : $@;
}

# A slot whose note is gone.
enqueue($old, 'forgotten', 'sent');
eventually { $cluster->sequence('forgotten') eq 'sent' } 'the old server publishes';
$old->sql('DELETE FROM outbox.lane WHERE slot = ' . $cluster->slot_of('forgotten'));
$old->stop('fast');
my (undef, $forgotten) = fence('forgotten');
$old->start;

enqueue($old, 'known', 'first');
eventually { $cluster->sequence('known') eq 'first' } '... and goes on after a restart';
is((fence('forgotten'))[1], $forgotten, '... which leaves fences alone of slots that it does not use');
$old->backup('base');
enqueue($old, $unknown, 'sent');
eventually { $cluster->sequence($unknown) eq 'sent' } '... also to a slot of which its copy does not know';
$old->wait_until_sent;
my $stale = $old->dispatcher;
kill 'STOP', $stale;
my @fence = fence($unknown);
my $node = $cluster->node_of($unknown);
$node->stop;
$node->save_data;
$node->start;
$cluster->wait_until_ok;

my $new = Outbox->new('new');
$new->init_from_backup($old, 'base');
$new->append_conf('postgresql.conf', "outbox.takeover_delay = '100ms'");
$new->start;
enqueue($new, 'known', 'second');
eventually { $cluster->sequence('known') eq 'first second' } 'the copy takes over when the lease has run out';
like(late_batch($unknown, @fence), qr/^FENCE /, 'a batch of the old one that is late does nothing, wherever it is for');
enqueue($new, $unknown, 'third');
eventually { $cluster->sequence($unknown) eq 'sent third' } 'the copy publishes to the slot that it did not know, too';
isnt((fence('forgotten'))[1], $forgotten, 'it has claimed all fences that there were');
ok($new->wait_until_sent, 'all is sent');
$node->stop;
$node->restore_data;
$node->start;
$cluster->wait_until_ok;
eventually { $cluster->sequence($unknown) eq 'sent third' } 'what a node loses that goes back to before the copy is sent again';

kill 'CONT', $stale;
eventually { $old->status('dispatcher_state') eq 'waiting for the lease' } 'the old one wakes up and waits';
enqueue($new, $_, 'last') foreach 'known', $unknown;
eventually { $cluster->sequence('known') eq 'first second last' && $cluster->sequence($unknown) eq 'sent third last' } 'the new one goes on';
done_testing();
