# PREPARE TRANSACTION keeps record and messages; COMMIT PREPARED sends them,
# ROLLBACK PREPARED does not, also after a restart or a crash of the server. So it is with
# what administrators change.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<END) foreach 1 .. 5;
BEGIN;
SELECT outbox_begin('m$_');
SELECT outbox_enqueue('d', 'a$_');
SAVEPOINT s;
SELECT outbox_enqueue('d', 'b$_');
RELEASE s;
SELECT outbox_commit();
PREPARE TRANSACTION 'p$_';
END
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
eventually { $redis->count('d') == 1 } 'prepared transactions do not delay others';

$node->sql(q{COMMIT PREPARED 'p1'});
eventually { $redis->count('d') == 3 } 'COMMIT PREPARED sends';

$node->restart;
$node->sql(q{COMMIT PREPARED 'p2'});
eventually { $redis->count('d') == 5 } '... after a restart';

$node->stop('immediate');
$node->start;
$node->sql(q{COMMIT PREPARED 'p3'});
eventually { $redis->count('d') == 7 } '... after a crash';

$node->sql(q{ROLLBACK PREPARED 'p4'});
$node->sql(q{SELECT outbox_enqueue('d', 'y')});
eventually { $redis->count('d') == 8 } 'a message after ROLLBACK PREPARED arrives';
is($redis->sequence('d'), 'x a1 b1 a2 b2 a3 b3 y', '... and nothing that was rolled back');

is($node->sql("SELECT outbox_begin('m$_')"), 'f', "the record of p$_ is kept") foreach 1 .. 3;
is($node->sql(q{BEGIN; SELECT outbox_begin('m4'); ROLLBACK}), 't', 'that of p4 is not');

# A prepared transaction whose segments are not the current ones any more.
$node->set('outbox.retention' => '1s', 'outbox.replay_window' => '1s', 'outbox.cleanup_interval' => '100ms');
my $generation = q{SELECT min(generation) FROM (SELECT max(generation) AS generation FROM outbox.ring WHERE ring <> 'history' GROUP BY ring) r};
my ($start, $n) = ($node->sql($generation), 0);
eventually
{
	$n++;
	$node->sql("BEGIN; SELECT outbox_begin('n$n'); SELECT outbox_enqueue('n', '$n'); SELECT outbox_commit(); COMMIT");
	$node->sql($generation) > $start + 5;
}
'the rings rotate below a prepared transaction';
$node->sql(q{COMMIT PREPARED 'p5'});
eventually { $redis->count('d') == 10 } '... which then is sent';
is($node->sql(q{SELECT count(*) FROM pg_prepared_xacts}), 0, 'none is left');

# What administrators change counts from COMMIT PREPARED on.
foreach my $is_later (0, 1)
{
	$node->sql(q{BEGIN; SELECT outbox_pause(); PREPARE TRANSACTION 'pause'});
	$node->restart if $is_later;
	eventually { $node->status('dispatcher_state') eq 'idle' } 'a pause is prepared';
	$node->sql(q{COMMIT PREPARED 'pause'});
	eventually { $node->status('dispatcher_state') eq 'paused' } $is_later ? '... also after a restart' : '... and counts when that is committed';
	$node->sql(q{SELECT outbox_resume()});
}

done_testing();
