# Messages of one transaction arrive in the order of the calls; those of a transaction
# that began to enqueue after another one had committed arrive behind them.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

#
# Inside a transaction
#
$node->sql(q{SELECT count(outbox_enqueue('many', i::text)) FROM generate_series(1, 10000) i});
eventually { $redis->count('many') == 10000 } '10,000 messages of one transaction arrive';
is($redis->sequence('many'), join(' ', 1 .. 10000), '... in the order of the calls');

$node->sql(<<'END');
BEGIN;
SELECT outbox_enqueue('nested', '1');
SAVEPOINT a;
SELECT outbox_enqueue('nested', '2');
SAVEPOINT b;
SELECT outbox_enqueue('nested', '3');
RELEASE b;
SELECT outbox_enqueue('nested', '4');
RELEASE a;
SELECT outbox_enqueue('nested', '5');
COMMIT;
END
eventually { $redis->count('nested') == 5 } 'messages from savepoints arrive';
is($redis->sequence('nested'), '1 2 3 4 5', '... in the order of the calls');

#
# Between transactions: because of a row lock, each session begins to enqueue only after
# the one before has committed. Others take ids all the time and commit late.
#
$node->sql('CREATE TABLE turn (n integer); INSERT INTO turn VALUES (0)');
my $noise = $node->start_load(clients => 2, scripts => [ <<'END' ]);
BEGIN;
SELECT outbox_enqueue('noise', 'x');
\sleep 20 ms
SELECT outbox_enqueue('noise', 'x');
COMMIT;
END
$node->load(clients => 8, transactions => 150, scripts => [ map { <<END } 'on', 'off' ]);
BEGIN;
SET LOCAL synchronous_commit = $_;
UPDATE turn SET n = n + 1 RETURNING n \\gset
SELECT outbox_enqueue('turns', :n::text);
SELECT outbox_enqueue('copies', :n::text);
COMMIT;
END
$noise->stop;
eventually { $redis->count('copies') == 1200 } 'messages of 8 sessions that take turns arrive';
is($redis->sequence('turns'), join(' ', 1 .. 1200), '... in the order of the transactions');
is($redis->sequence('copies'), join(' ', 1 .. 1200), '... in every stream');

done_testing();
