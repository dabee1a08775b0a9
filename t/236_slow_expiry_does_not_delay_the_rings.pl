# While expired records of a custom record table are deleted, however long that takes, the
# dispatcher sleeps when there is nothing else to do, and the rings rotate.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.cleanup_interval = '500ms'
outbox.replay_window = '1s'
END

$node->create_hang;
$node->sql(<<'END_OF_SQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('own', record_table => 'inbox', retention => '1 s');
END_OF_SQL
$node->sql(q{CREATE TRIGGER hang BEFORE DELETE ON inbox FOR EACH ROW EXECUTE FUNCTION hang()});
$node->sql(q{BEGIN; SELECT outbox_begin('m', 'own'), outbox_commit(); COMMIT});

sub transactions { return $node->sql(q{SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()}); }

my $windows = join ' UNION ALL ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3;
eventually { $node->hangs } 'a trigger hangs';
my $first = $node->bookkeeper;
kill 'STOP', $first;			# so that it cannot be ended before it is looked at
my $newest = $node->sql("SELECT max(number) FROM ($windows) w");
my $before = transactions();
eventually { $node->sql(q{SELECT outbox_enqueue('d', 'x')}); $node->sql("SELECT min(number) > $newest FROM ($windows) w") eq 't' } 'segments of the log are emptied';
is($node->bookkeeper, $first, '... while it hangs');
cmp_ok(transactions() - $before, '<', 100_000, '... and the dispatcher has slept meanwhile');
kill 'CONT', $first;
eventually { $node->bookkeeper ne $first } 'it is ended at last';

done_testing();
