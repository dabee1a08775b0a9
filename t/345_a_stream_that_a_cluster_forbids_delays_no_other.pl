# A Redis Cluster refuses a batch as a whole if the ACL forbids one of its streams. The messages
# for such streams wait, those of a batch all at once, and no others do: the link stays open.
# Where a right is missing that the outbox itself needs, no message is to blame.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(masters => 1, replicas => 0);
my $redis = $cluster->node(0);
my @good = ('{a}:good', '{a}:also', 'b');
my @bad = ('{a}:not', '{a}:never');
allow(@good);
my $node = Outbox->create('main', redis => $cluster, conf => <<"END");
outbox.redis_url = '@{[ $cluster->url =~ s{//}{//sender:secret@}r ]}'
outbox.command_timeout = '60s'
outbox.retry_delay = '1h'
outbox.retry_max_delay = '1h'
outbox.max_attempts = 1000000
END

# The dispatcher may use its own keys and these streams.
sub allow { my @keys = map { "~$_" } 'outbox:*', @_; $redis->command('ACL', 'SETUSER', 'sender', 'on', '>secret', '+@all', 'resetkeys', @keys); return; }
sub rejected { return $redis->command('INFO', 'commandstats') =~ /cmdstat_evalsha:.*rejected_calls=(\d+)/ ? $1 : 0; }
sub deferred { return $node->sql("SELECT coalesce(sum(deferred), 0) FROM outbox.destinations WHERE dest = '$_[0]'"); }

my $ledger = Ledger->new($node, $cluster, @good, @bad);
$ledger->post(@good);
eventually { $ledger->arrived == @good } 'messages arrive';
my $link = $redis->newest_connection_of('sender');

# Forbidden from the first, in a batch that begins with a message that is allowed.
$node->sql("SELECT post(s) FROM (SELECT s FROM generate_series(1, 50) n, unnest(ARRAY['$good[0]', '$bad[0]', '$good[1]', '$bad[1]', '$good[2]', '$bad[0]']) WITH ORDINALITY u (s, o) ORDER BY n, o) m");
eventually { $ledger->arrived == 51 * @good } 'forbidden streams do not stop others';
eventually { deferred($bad[0]) eq '100' && deferred($bad[1]) eq '50' } '... their own messages wait';
is(rejected(), 3, '... after one batch, and a question for each of the two');
like($node->sql("SELECT last_error FROM outbox.destinations WHERE dest = '$bad[0]'"), qr/^NOPERM /, '... with what Redis said');
is($redis->newest_connection_of('sender'), $link, 'the link stays open');
allow(@good, @bad);
$node->set('outbox.retry_delay' => '50ms', 'outbox.retry_max_delay' => '100ms');
$node->sql("UPDATE outbox.deferred SET next_attempt = now() WHERE state = 'waiting'");
$ledger->agrees('with the right they arrive, in order');

# Forbidden amid traffic, and tried again and again.
my $load = $ledger->start_load(100);
eventually { $ledger->arrived > 51 * @good + 150 + 100 } 'messages flow';
$link = $redis->newest_connection_of('sender');    # the settings were read again
allow(@good, $bad[0]);
eventually { deferred($bad[1]) > 5 } 'a stream is forbidden amid traffic';
my ($sent, $before) = ($ledger->arrived, rejected());
eventually { $ledger->arrived > $sent + 200 && rejected() > $before + 10 } 'it is tried again and again, others flow';
is(deferred($bad[0]), '0', '... and are not deferred');
is($redis->newest_connection_of('sender'), $link, '... the link stays open');
is($node->status('redis_state'), 'up', '... Redis is not to blame');
allow(@good, @bad);
eventually { deferred($bad[1]) eq '0' } 'with the right its messages arrive under load';

# What the outbox itself needs.
foreach my $taken ('-evalsha', '-xadd', 'resetkeys')
{
	$redis->command('ACL', 'SETUSER', 'sender', $taken, $taken eq 'resetkeys' ? map { "~$_" } @good, @bad : ());
	eventually { $node->status('redis_state') eq 'down' } "$taken: Redis cannot be used";
	is($node->sql('SELECT count(*) FROM outbox.deferred WHERE state = $$waiting$$'), 0, '... no message is to blame');
	allow(@good, @bad);
	eventually { $node->status('redis_state') eq 'up' } '... given back, dispatch goes on';
}
$load->stop;
$ledger->agrees('all messages are there, in order');

# What is needed only where a stream has partitions: their destination waits.
$redis->command('ACL', 'SETUSER', 'sender', '-hset', '~spread*');
$node->sql(q{SELECT outbox_set_destination('spread', partitions => 2)});
$node->sql(q{SELECT outbox_enqueue('spread', 'body')});
$sent = $ledger->arrived;
$ledger->post(@good);
eventually { $ledger->arrived == $sent + @good } 'a right that only partitions need is missing: others are sent' or diag $node->status('problem');
eventually { deferred('spread') eq '1' && $node->sql("SELECT last_error FROM outbox.destinations WHERE dest = 'spread'") =~ /^could not write its number of partitions: NOPERM .*hset/ } '... and why its messages wait is said'
  or diag $node->sql("SELECT last_error FROM outbox.destinations WHERE dest = 'spread'");
$redis->command('ACL', 'SETUSER', 'sender', '+hset');
eventually { deferred('spread') eq '0' && $cluster->count('spread:0') + $cluster->count('spread:1') == 1 } '... until it is given';

# So it does without the right to a stream that consumers are to read up to its end.
allow(@good, @bad, 'order');
$node->sql(q{SELECT outbox_enqueue('order', 'body')});
eventually { $cluster->count('order') == 1 } 'a stream without partitions gets a message';
allow(@good, @bad, 'order:*');
$node->sql(q{SELECT outbox_set_destination('order', partitions => 1); SELECT outbox_enqueue('order', 'body')});
eventually { deferred('order') eq '1' && $node->sql("SELECT last_error FROM outbox.destinations WHERE dest = 'order'") =~ /^could not write its number of partitions: NOPERM / } '... until it has some, and may not be used any more'
  or diag $cluster->count('order:0');
allow(@good, @bad, 'order', 'order:*');
eventually { $cluster->count('order:0') == 1 } '... the next one is sent when it may';
is($redis->command('HGET', 'outbox:partitions:order', 'end'), $redis->command('XREVRANGE', 'order', '+', '-')->[0][0], '... and consumers know where it ends');
allow(@good, @bad);

# Rights to each of the streams, and not to both in one command.
$redis->command('ACL', 'SETUSER', 'sender', 'resetkeys', '~outbox:*', "~$good[0]", "(+\@all ~outbox:* ~$good[1])");
$ledger->post(@good[ 0, 1 ]);
$ledger->agrees('messages that may be added one by one are');

done_testing();
