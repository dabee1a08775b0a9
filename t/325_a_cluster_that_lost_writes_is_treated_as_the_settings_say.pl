# One node of a Redis Cluster has lost all, or forbids a stream: with outbox.redis_data_loss =
# resume what was lost is not sent again, and dispatch to all nodes goes on.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster,
	conf => "outbox.redis_data_loss = 'resume'\noutbox.retry_delay = '100ms'\noutbox.retry_max_delay = '1s'\noutbox.max_attempts = 1000000");
my $ledger = Ledger->new($node, $cluster, map { "events:$_" } 1 .. 6);
my $emptied = $cluster->index_of('events:1');
my @there = grep { $cluster->index_of($_) == $emptied } $ledger->streams;

$ledger->post for 1 .. 3;
$ledger->agrees('messages arrive');
$cluster->node($emptied)->command('FLUSHALL');
$node->sql("DELETE FROM ledger WHERE stream = ANY ('{" . join(',', @there) . "}')");
eventually { $node->log_since(0) =~ /continuing after window \d+ because "outbox.redis_data_loss" is "resume"/ } 'an emptied node is noticed while nothing is sent';
$ledger->post for 1 .. 3;
$ledger->agrees('what it lost is not sent again, what comes next is');

# The ACL forbids a stream on its node, which refuses the whole batch of its slot.
my @acl = map { "~$_" } 'outbox:*', 'events:*', '{events:2}:also';
$_->command('ACL', 'SETUSER', 'default', 'resetkeys', @acl) foreach $cluster->nodes;
$node->sql("SELECT outbox_enqueue('{events:2}:not', i::text) FROM generate_series(1, 3) i");
my $load = $ledger->start_load(100);
eventually { $node->sql("SELECT deferred FROM outbox.destinations WHERE dest = '{events:2}:not'") eq '3' } 'messages for a stream that is forbidden wait, under load';
my $sent = $ledger->arrived;
eventually { $ledger->arrived > $sent + 200 } 'all others are sent';
$load->stop;
$_->command('ACL', 'SETUSER', 'default', 'allkeys') foreach $cluster->nodes;
eventually { $cluster->sequence('{events:2}:not') eq '1 2 3' } 'it is allowed again';
$ledger->agrees('all messages are there, in order');

# A server that has all hash slots in use.
$node->sql('INSERT INTO outbox.lane SELECT generate_series(0, 16383) ON CONFLICT DO NOTHING');
$node->restart;
$ledger->post;
$ledger->agrees('all hash slots are in use');

done_testing();
