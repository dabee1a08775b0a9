# `problem` says of deferred messages whether their destination refuses them or is paused:
# or that there are both; also after a restart, and after a refusal is over.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retry_delay = '5 min'
outbox.retry_max_delay = '5 min'
END

sub problem { return $node->status('problem'); }

$redis->refuse('refused');
$node->sql(q{SELECT outbox_enqueue('refused', 'x')});
eventually { problem() =~ /refuses it.*WRONGTYPE/ } 'a refusal is told';
$node->restart;
$node->dispatcher;
eventually { problem() !~ /^No dispatcher/ } 'after a restart';
like(problem(), qr/refuses it.*WRONGTYPE/, '... it is told again');

$node->sql(q{SELECT outbox_pause('paused'); SELECT outbox_enqueue('paused', 'x')});
eventually { $node->status('deferred') == 2 } 'messages for another destination wait because it is paused';
like(problem(), qr/^2 messages wait for destinations that refuse them or are paused\. .*outbox_resume\(\).*WRONGTYPE/, '... and both the refusal and the pause are told');
$node->sql(q{SELECT outbox_resume('paused')});
eventually { $redis->count('paused') == 1 } 'the pause is over';
eventually { problem() =~ /^1 message waits for a destination that refuses it, and is retried\./ } '... then only the refusal is told';
$node->sql(q{SELECT outbox_pause('paused'); SELECT outbox_enqueue('paused', 'y')});
eventually { $node->status('deferred') == 2 } 'it is paused again';
$redis->accept('refused');
$node->set('outbox.retry_delay' => '100ms', 'outbox.retry_max_delay' => '100ms');
$node->sql(q{SELECT outbox_enqueue('refused', 'y')});
$node->sql(q{UPDATE outbox.deferred SET next_attempt = now() WHERE dest = 'refused'});
eventually { $redis->count('refused') == 2 } 'the destination accepts messages again';
eventually { problem() =~ /paused/ } 'only the pause is told from then on';
unlike(problem(), qr/WRONGTYPE/, '... and no refusal');

done_testing();
