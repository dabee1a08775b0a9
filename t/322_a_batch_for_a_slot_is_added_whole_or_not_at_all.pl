# The script that publishes a batch does all or nothing in a Redis Cluster, too: while the
# slot moves from one node to another, after it has moved, when memory is full, when a
# stream is forbidden. And what it answers tells these apart.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $script = slurp_file(dirname(__FILE__) . '/../bgworker/connection/publish.lua');
my $sha;
my $uuid = '00000000-0000-4000-8000-000000000000';
my ($fence, @stream) = ('outbox:fence:x:{orders}', 'orders', '{orders}:eu');

$sha = $_->command('SCRIPT', 'LOAD', $script) foreach $cluster->nodes;
my ($from) = grep { $cluster->node($_) == $cluster->node_of($fence) } 0 .. 2;
my $to = ($from + 1) % 3;
my $slot = $cluster->node($from)->command('CLUSTER', 'KEYSLOT', $fence);

# The value of the fence that names a message, or the end of the window before it.
sub fence_at { return "1 $uuid me $_[0]"; }

# Runs the script on a node: a message to each stream, on top of message $last. Returns
# how many were added, or the error.
sub batch
{
	my ($node, $last, %option) = @_;
	my @to = @{ $option{streams} // \@stream };
	my @groups = map { (1, $_, 1, 0, 'id', "m$_") } @to;
	my @ids = map { $last + $_ } 1 .. @to;
	my @keys = @{ $option{keys} // [ $fence, @to ] };
	my $reply = eval {
		$cluster->node($node)->command(
			'EVALSHA', $sha, scalar @keys, @keys, $last ? fence_at($last) : '', '', 0,
			@groups, "1/$uuid " . join('', map { "$_ " } @ids), fence_at($ids[-1] // 1))
	};
	return $reply ? $reply->[1] ? "refused: $reply->[1]" : $reply->[0] : $@ =~ s/\n//r;
}

# What a node has: the fence and the length of each stream.
sub state_of
{
	my ($node) = @_;
	return eval { ($cluster->node($node)->command('GET', $fence) // '-') =~ s/.* //r . ': ' . join ' ', map { $cluster->node($node)->command('XLEN', $_) } @stream } // $@ =~ s/\n//r;
}

is(batch($from, 0, streams => []), 0, 'the fence is claimed by a batch without messages');
is(batch($from, 1), 2, 'a batch for two streams of a slot is added');
is(state_of($from), '3: 1 1', '... once');
like(batch($from, 1), qr/^FENCE /, 'a batch that builds on an older fence is not added');
like(batch($to, 3), qr/^MOVED $slot 127.0.0.1:\d+$/, 'a node that does not serve the slot says who does');
like(batch($from, 3, keys => [ $fence, 'elsewhere' ]), qr/^CROSSSLOT /, 'a stream of another slot is refused');

$cluster->node($from)->command('CONFIG', 'SET', 'maxmemory', 1);
like(batch($from, 3), qr/^OOM /, 'when memory is full the first write of the script fails');
$cluster->node($from)->command('CONFIG', 'SET', 'maxmemory', 0);

$cluster->node($from)->command('ACL', 'SETUSER', 'default', 'resetkeys', '~outbox:*', '~orders');
like(batch($from, 3), qr/^NOPERM /, 'a stream that is forbidden stops the batch');
$cluster->node($from)->command('ACL', 'SETUSER', 'default', 'allkeys');
is(state_of($from), '3: 1 1', 'none of these has added anything');

$cluster->move_slot($slot, $from, $to, stop_after => 1);
like(batch($from, 3), qr/^TRYAGAIN /, 'while some keys of the slot have moved, the node that has the others runs no batch');
like(batch($to, 3), qr/^MOVED /, '... nor does the one that they move to');
like(batch($from, 3, streams => [ @stream, '{orders}:new' ]), qr/^TRYAGAIN /, '... nor for a new stream');
$cluster->node($from)->command('MIGRATE', '127.0.0.1', $cluster->node($to)->port, '', 0, 5000, 'KEYS', $fence, @stream);
like(batch($from, 3), qr/^ASK $slot /, 'when all keys have moved, the old node names the new one');
$_->command('CLUSTER', 'SETSLOT', $slot, 'NODE', $cluster->id($to)) foreach map { $cluster->node($_) } $to, $from;
is(state_of($to), '3: 1 1', 'none of these has added anything');
is(batch($to, 3), 2, 'the batch is added where the slot is now');
is(state_of($to), '5: 2 2', '... once');

$cluster->node($to)->command('SET', '{orders}:not', 'a stream');
like(batch($to, 5, streams => [ @stream, '{orders}:not' ]), qr/^refused: WRONGTYPE/, 'what a stream refuses is told');
is(state_of($to), '7: 3 3', '... and what was before it is added');

done_testing();
