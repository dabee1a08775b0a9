# One node of a Redis Cluster has lost all: with outbox.redis_data_loss = resume what was lost
# is not sent again, and dispatch to all nodes goes on.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my $node = Outbox->create('main', redis => $cluster, conf => "outbox.redis_data_loss = 'resume'");
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

# A server that has all hash slots in use.
$node->sql('INSERT INTO outbox.lane SELECT generate_series(0, 16383) ON CONFLICT DO NOTHING');
$node->restart;
$ledger->post;
$ledger->agrees('all hash slots are in use');

done_testing();
