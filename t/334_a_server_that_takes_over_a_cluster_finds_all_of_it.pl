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
my $script = slurp_file(dirname(__FILE__) . '/../bgworker/connection/publish.lua');

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
	my ($stream, $key, $builds_on, $era) = @_;
	my ($window, $uuid, $connection, $id) = split / /, $builds_on;
	$connection =~ s/^\w+/$era/ if $era;
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
ok($old->poll_query_until('postgres', 'SELECT published = number FROM outbox.window_0 ORDER BY number DESC LIMIT 1'), 'the copy will know what was sent');
$old->backup('base');
enqueue($old, $unknown, 'sent');
eventually { $cluster->sequence($unknown) eq 'sent' } '... also to a slot of which its copy does not know';
$old->wait_until_sent;
my $stale = $old->dispatcher;
kill 'STOP', $stale;

# As if it had begun an era that its copy does not know, and had sent nothing in it but what
# is still under way: its claims are all that tells of that.
my @fence = fence($unknown);
$cluster->node_of($unknown)->command('SET', $fence[0], $fence[1] =~ s/\.\w+\./.0badc1a1./r);
@fence = fence($unknown);
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
dispatch('off');
$node->stop;
$node->restore_data;
$node->start;
$cluster->wait_until_ok;
is(late_batch($unknown, @fence, '0badc1a1'), 1, 'the first batch of the old one arrives where the claim of the copy is lost');
dispatch('on');
eventually { $cluster->sequence($unknown) eq 'sent late third' } '... and what is lost is sent again';

kill 'CONT', $stale;
eventually { $old->status('dispatcher_state') eq 'waiting for the lease' } 'the old one wakes up and waits';
enqueue($new, $_, 'last') foreach 'known', $unknown;
eventually { $cluster->sequence('known') eq 'first second last' && $cluster->sequence($unknown) eq 'sent late third last' } 'the new one goes on';

# Fences of another server are in a slot whose master is away, and in one that is used for
# the first time meanwhile. What was left out is sent when the master is back.
my $id = $new->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($away) = grep { !$in_use{$_} } 0 .. 2;
my ($waits) = grep { $cluster->index_of($_) == $away } map { "waits:$_" } 1 .. 30;
my ($beside, $first) = grep { $cluster->index_of($_) != $away } map { "beside:$_" } 1 .. 30;

sub dispatch
{
	my ($state) = @_;
	$new->set('outbox.dispatch' => $state);
	eventually { ($new->status('dispatcher_state') eq 'off') eq ($state eq 'off') } "dispatch is $state";
	return;
}

$old->stop('fast');
enqueue($new, $_, 'known') foreach $waits, $beside, $first;
ok($new->wait_until_sent, 'messages arrive');

# What the forged fences below tell counts from the oldest fence on.
sub windows { my %at = map { (split / /, (fence($_))[1])[0] => 1 } @_; return keys %at; }
eventually { windows('known', $unknown, $waits, $beside, $first) == 1 } 'all fences are at the same window';
wait_until { !grep { (fence($_))[1] !~ / 0$/ } $waits, $beside, $first };
dispatch('off');
$new->sql("DELETE FROM outbox.lane WHERE slot = " . $cluster->slot_of($first));
foreach my $stream ($waits, $first)
{
	my ($key, $value) = fence($stream);
	my ($window, $uuid, $names, $message) = split / /, $value;
	$cluster->node_of($stream)->command('SET', $key, join ' ', $window + 1000, $uuid =~ s/^.{8}/ffffffff/r, $names =~ s/^\w+/0badcafe/r, $message);
}
$cluster->node($away)->stop;
dispatch('on');
enqueue($new, $waits, 'left out');
enqueue($new, $beside, 'sent');
eventually { $cluster->sequence($beside) eq 'known sent' } 'a message is sent beside a slot whose master is away';
enqueue($new, $first, 'sent');
eventually { $cluster->sequence($first) eq 'known sent' } '... also where another server has published';
$cluster->node($away)->start;
eventually { (eval { $cluster->sequence($waits) } // '') eq 'known left out' } 'what was left out follows';
done_testing();
