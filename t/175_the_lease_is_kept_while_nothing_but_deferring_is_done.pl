# A dispatcher that only defers messages, for as long as it takes, sends nothing to Redis;
# its lease is renewed all the same. Otherwise another server would take over from it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $scheduled = 500_000;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.cleanup_interval = -1');

# How often a batch, or what renews the lease, was run.
sub scripts { return $redis->command('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/ ? $1 : 0; }

$node->sql(q{SELECT outbox_enqueue('d', 'before')});
ok($node->wait_until_sent, 'a message is sent');

# Each of them is a page of its own, in a transaction of its own: together these take much
# longer than the lease lives.
$node->set('outbox.batch_size' => 1);
$node->sql(<<END);
BEGIN;
SELECT outbox_enqueue('d', 'first');
SELECT count(outbox_enqueue('d', 'later', deliver_at => clock_timestamp() + interval '1 hour')) FROM generate_series(1, $scheduled);
COMMIT;
END
eventually { $redis->sequence('d') eq 'before first' } 'the first message of a transaction is sent';
my $before = scripts();
eventually { scripts() > $before + 1 } 'while the others are put off, the lease is renewed again and again';
cmp_ok($node->status('scheduled'), '<', $scheduled, '... before all of them are');

done_testing();
