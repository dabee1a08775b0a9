# The lease in a Redis Cluster: a clean stop gives it back, whatever the dispatcher has asked
# which node last; and what was made while the lease was ours is not sent when it has run out.

use strict;
use warnings FATAL => 'all';

use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster);
my $key = 'outbox:lease:' . $node->sql('SELECT id FROM outbox.instance');

sub lease { return $cluster->node_of($key)->command('GET', $key) // ''; }
sub enqueue { my ($stream, $body) = @_; $node->sql("SELECT outbox_enqueue('$stream', '$body')"); return; }

# A stream of each node, each in a hash slot that was not used before: when one is used for
# the first time, all nodes are asked which slots are moving.
my %stream;
$stream{ $cluster->index_of("d:$_") } = "d:$_" foreach 1 .. 20;
foreach my $stream (map { $stream{$_} } sort keys %stream)
{
	enqueue($stream, 'first');
	eventually { $cluster->sequence($stream) eq 'first' } 'a message arrives';
	isnt(lease(), '', '... the lease is held');
}

# Messages that are processed and cause none keep the dispatcher as busy as it can be.
$node->sql(q{CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz)});
$node->sql(q{CREATE INDEX ON inbox (dispatched_at) WHERE dispatched});
$node->sql(q{SELECT outbox_create_endpoint('inbox', record_table => 'inbox')});
$node->set(log_min_messages => 'debug1');
my $load = $node->start_load(clients => 2, rate => 100, scripts => [ <<'END' ]);
\set id random(1, 1000000000000)
BEGIN;
SELECT outbox_begin(':id', 'inbox');
SELECT outbox_commit();
COMMIT;
END
my $life = sub { $cluster->node_of($key)->command('PTTL', $key) };
eventually
{
	my $left = $life->();
	my $log = $node->log_position;
	wait_until { my $now = $life->(); my $rises = $now > $left; $left = $now; $rises };

	# A dispatcher that gets no processor for as long as the lease lives loses it, and asks for it once more.
	$node->log_since($log) !~ /the lease could not be renewed in time/;
}
'while messages are processed and none is sent, the lease is renewed, and no link is closed for it';
$load->stop;

# From the next start on: a dispatcher that is stopped while it connects again, as it does for
# new settings, has no link on which to give the lease back.
$node->sql('ALTER SYSTEM RESET log_min_messages');
$node->stop('fast');
is(lease(), '', 'a clean stop gives the lease back');

# The dispatcher reads a page when Redis comes back. It looks up which of its messages were
# deferred, since its predecessor may have done that, and hangs there.
$_->stop foreach $cluster->nodes;
$node->start;
my ($stream) = values %stream;
my $windows = $node->sql('SELECT max(number) FROM outbox.window_0');
enqueue($stream, 'second');
ok($node->poll_query_until('postgres', "SELECT max(number) > $windows FROM outbox.window_0"), 'a window is open');
my $first = $node->dispatcher;
kill 'TERM', $first;
eventually { $node->dispatcher != $first && $node->status('redis_state') eq 'down' } 'the next dispatcher waits for Redis';
my $session = $node->session;
$session->query_safe('BEGIN; LOCK TABLE outbox.deferred IN ACCESS EXCLUSIVE MODE');
$_->start foreach $cluster->nodes;
my $waits = q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'outbox.deferred'::regclass AND NOT granted};
eventually { $node->sql($waits) eq 't' && lease() ne '' } 'it hangs amid a page, with the lease';
$cluster->wait_until_ok;
eventually { lease() eq '' } '... until its lease has run out';
$cluster->node_of($key)->command('SET', $key, 'another.server of a test');
$session->query_safe('COMMIT');
$session->quit;
eventually { $node->status('dispatcher_state') eq 'waiting for the lease' } 'it finds the lease in other hands';
is($cluster->sequence($stream), 'first', '... and has sent nothing');
$cluster->node_of($key)->command('DEL', $key);
eventually { $cluster->sequence($stream) eq 'first second' } 'when it has the lease again, it sends';
done_testing();
