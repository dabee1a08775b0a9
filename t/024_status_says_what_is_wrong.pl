# outbox.status shows what the dispatcher does; its column problem says what is wrong and
# what to do.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

sub enqueue { $node->sql(q{SELECT outbox_enqueue('d', 'x')}); return; }

sub has_problem
{
	my ($regex, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $node->status('problem') =~ $regex } $name or diag $node->status('problem');
	return;
}

# Nothing is wrong.
enqueue() foreach 1 .. 3;
$node->sql(q{BEGIN; SELECT outbox_begin('m1'); SELECT outbox_commit(); COMMIT; SELECT outbox_begin('m1')});
ok($node->wait_until_sent, 'messages are sent');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem';
is($node->status('dispatcher_pid'), $node->dispatcher, 'the dispatcher is shown');
is($node->status('redis_state, redis_error IS NULL'), 'up|t', '... and Redis');
is($node->status('pending, oldest_pending IS NULL, deferred, windows'), '0|t|0|0', 'nothing is pending');
is($node->status('sent, duplicates'), '3|1', 'what was sent, and duplicates');
is($node->status('log_size > 0'), 't', 'the size of the log');
eventually { $node->status('dispatcher_state') eq 'idle' } 'the dispatcher is idle';
my $now = $node->sql('SELECT clock_timestamp()');
$node->sql('SELECT outbox_cleanup()');
is($node->status("last_cleanup BETWEEN '$now' AND now()"), 't', 'the last cleanup');

# Redis is away.
$redis->stop;
enqueue() foreach 1 .. 2;
has_problem(qr/Redis/, 'a problem: Redis is away');
is($node->status('redis_state, redis_error IS NOT NULL'), 'down|t', '... which is shown');
is($node->status('pending, oldest_pending IS NOT NULL'), '2|t', '... with what waits');
is($node->sql('SELECT count(*), min(dest), min(state), min(body_size) FROM outbox.pending'), '2|d|new|1', '... in outbox.pending');
eventually { $node->status('dispatcher_state') eq 'waiting for Redis' } 'the dispatcher waits for Redis';
eventually { $node->status('windows') > 0 } 'windows are opened meanwhile';
$redis->start;
ok($node->wait_until_sent, 'Redis is back');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem any more';

# Dispatch is off.
$node->set('outbox.dispatch' => 'off');
has_problem(qr/outbox\.dispatch/, 'a problem: dispatch is off');
enqueue();
eventually { $node->status('dispatcher_state') eq 'off' } 'the dispatcher says so';
eventually { $node->status('redis_state, redis_error IS NULL') eq 'unknown|t' } '... and that it does not know of Redis';
my $count = $redis->count('d');
is($node->status('pending'), 1, '... and a message waits');
$node->set('outbox.dispatch' => 'on');
ok($node->wait_until_sent, 'dispatch is on again');
is($redis->count('d'), $count + 1, '... and the message is sent');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem any more';

# A Redis that may evict keys that the outbox needs.
$redis->cli('CONFIG', 'SET', 'maxmemory', '1gb', 'maxmemory-policy', 'allkeys-lru');
$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal');
enqueue();
has_problem(qr/maxmemory-policy|evict/, 'a problem: an eviction policy that may drop streams');
ok($node->wait_until_sent, '... while messages are sent');
$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem any more';

# What was found before dispatch was off is no problem any more: nobody looks.
my $kinds = q{SELECT string_agg(kind, ' ' ORDER BY kind) FROM outbox.problems};
$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal');
eventually { $node->sql($kinds) eq 'eviction' } 'the policy is a problem again';
$node->set('outbox.dispatch' => 'off');
eventually { $node->sql($kinds) eq 'dispatch off' } '... until dispatch is off';
$redis->cli('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
$node->set('outbox.dispatch' => 'on');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem any more';

# A Redis Cluster, to which batches cannot be sent.
my $cluster = Redis->new(tcp => 1, config => [ '--cluster-enabled', 'yes', '--cluster-port', PostgreSQL::Test::Cluster::get_free_port() ]);
$node->append_conf('postgresql.conf', "outbox.redis_url = '" . $cluster->url . "'");
$node->restart;
enqueue();
has_problem(qr/[Cc]luster/, 'a problem: Redis in cluster mode');
cmp_ok($node->status('pending'), '>', 0, '... a message waits');
is($cluster->cli('DBSIZE'), 0, '... and nothing is sent');

# A replica that takes writes. Its master, which need not be there for that, would undo them.
my $replica = Redis->new(config => [ '--replicaof', '127.0.0.1', PostgreSQL::Test::Cluster::get_free_port(), '--replica-read-only', 'no' ]);
$node->append_conf('postgresql.conf', "outbox.redis_url = '" . $replica->url . "'");
$node->restart;
has_problem(qr/replica that takes writes.* Use the address of the master in outbox\.redis_url\./, 'a problem: a replica that takes writes');
is($replica->cli('DBSIZE'), 0, '... and nothing is sent');

# A Redis that has as many clients as it may have; then it answers nothing, and hangs up.
my $crowded = Redis->new;
my $client = $crowded->start_cli('BLPOP', 'nothing', '0');
eventually { $crowded->command('INFO', 'clients') =~ /blocked_clients:1/ } 'a client keeps its connection';
$crowded->command('CONFIG', 'SET', 'maxclients', '1');
$node->append_conf('postgresql.conf', "outbox.redis_url = '" . $crowded->url . "'");
$node->restart;
has_problem(qr/it refuses connections: ERR max number of clients reached/, 'a problem: a Redis that has too many clients');
$client->kill_kill;

# A destination that refuses.
$node->append_conf('postgresql.conf', "outbox.redis_url = '" . $redis->url . "'");
$node->restart;
ok($node->wait_until_sent, 'with another Redis it is sent');
$redis->refuse('refusing');
$node->sql(q{SELECT outbox_enqueue('refusing', 'x')});
has_problem(qr/refus|defer|WRONGTYPE/, 'a problem: a destination refuses its messages');
$redis->accept('refusing');
ok($node->wait_until_sent, '... until it takes them');
eventually { $node->status('problem IS NULL') eq 't' } 'no problem any more';

done_testing();
