# Two servers take themselves for the same database and publish to one Redis Cluster, one
# after the other. What the stale one has sent to a slot that the other does not know does
# not come behind messages of that, and the other finds what its own database has sent.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $old = Outbox->create('old', redis => $cluster, init => { allows_streaming => 1 });
my ($unknown) = grep { $cluster->index_of($_) != $cluster->index_of('known') } map { "unknown:$_" } 1 .. 20;

sub enqueue { my ($node, $stream, $body) = @_; $node->sql("SELECT outbox_enqueue('$stream', '$body')"); return; }

# The entry of a message, as a number that tells when it came.
sub came { my ($body) = @_; return map { $_->{entry} =~ s/-/./r } grep { $_->{body} eq $body } map { $cluster->entries($_) } 'known', $unknown; }

enqueue($old, 'known', 'first');
eventually { $cluster->sequence('known') eq 'first' } 'the old server publishes';
$old->backup('base');
enqueue($old, $unknown, 'sent');
eventually { $cluster->sequence($unknown) eq 'sent' } '... also to a slot of which its copy does not know';

# A batch is in the socket of a node that hangs, and the dispatcher is frozen.
my $frozen = $cluster->index_of($unknown);
$cluster->node($frozen)->pause;
enqueue($old, $unknown, 'late');
eventually { $old->status('redis_state') eq 'down' } 'a node hangs with a batch in its socket';
my $stale = $old->dispatcher;
kill 'STOP', $stale;

my $new = Outbox->new('new');
$new->init_from_backup($old, 'base');
$new->append_conf('postgresql.conf', "outbox.takeover_delay = '1s'");
$new->start;
enqueue($new, 'known', 'second');
enqueue($new, $unknown, 'third');
$cluster->node($frozen)->resume;
eventually { $cluster->sequence('known') eq 'first second' && $cluster->sequence($unknown) =~ /third/ } 'the copy takes over when the lease has run out';

kill 'CONT', $stale;
eventually { $old->status('dispatcher_state') eq 'waiting for the lease' } 'the old one wakes up and waits';
enqueue($new, $_, 'last') foreach 'known', $unknown;
eventually { $cluster->sequence('known') eq 'first second last' } 'the new one goes on';
eventually { $cluster->sequence($unknown) =~ /^sent (late )?third last$/ } '... in the slot that it did not know, too, and what was late has not come behind it';
my ($late) = came('late');
my ($begun) = came('second');
ok(!$late || $late < $begun, '... nor behind anything of it') or diag "$late, $begun";
done_testing();
