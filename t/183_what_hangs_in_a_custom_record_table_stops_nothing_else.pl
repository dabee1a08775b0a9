# A process of its own works on custom record tables. A trigger there that hangs, even one
# that catches what should end it, stops neither dispatch nor work on other tables, and
# does not keep DROP DATABASE from its lock; the process ends with its dispatcher.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.cleanup_interval = -1');

$node->sql(<<'END_OF_SQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE TABLE other (LIKE inbox INCLUDING ALL);
END_OF_SQL
$node->create_hang;

$node->sql(q{SELECT outbox_enqueue('d', 'plain')});
ok($node->wait_until_sent, 'a database without record tables');
is($node->bookkeeper, '', '... has no bookkeeper');
$node->sql(q{SELECT outbox_create_endpoint('own', record_table => 'inbox', retention => '1 hour'), outbox_create_endpoint('other', record_table => 'other', retention => '1 hour')});
$node->handle('a1', 'own');
is($node->sql(q{SELECT outbox_wait('a1', 'own', '3 min')}), 't', 'an endpoint gets a record table: its records are marked');
like($node->bookkeeper, qr/^\d+$/, '... by a process of its own');

# The trigger hangs, and catches every error.
my $dispatcher = $node->dispatcher;
my $first = $node->bookkeeper;
$node->sql(q{CREATE TRIGGER hang BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION hang()});
$node->handle('b1', 'own');
eventually { $node->hangs } 'a trigger hangs';
kill 'STOP', $first;    # so that it cannot be ended before it is looked at
$node->load(clients => 2, transactions => 50, scripts => [ "SELECT outbox_enqueue('e', 'x');\n" ]);
eventually { $redis->count('e') == 100 } '... messages are sent meanwhile';
is($node->bookkeeper, $first, '... while it still hangs');
kill 'CONT', $first;

# The process is ended also when dispatch is off. (This is set for the server; set for the database, it would restart the process.)
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
eventually { $node->bookkeeper ne $first } '... it is ended with its process all the same';
$node->sql('ALTER SYSTEM RESET outbox.dispatch');
$node->reload;
$node->handle('o1', 'other');
is($node->sql(q{SELECT outbox_wait('o1', 'other', '3 min')}), 't', 'dispatch is on: other tables get their turn');
eventually { $node->status('problem') =~ /endpoint "own".*did not end.*left alone/ } '... status says what is wrong';
is($node->dispatcher, $dispatcher, '... and the dispatcher is the same');
is($node->sql(q{SELECT dispatched FROM inbox WHERE message_id = 'b1'}), 'f', '... the record is not marked');
is($node->sql('SELECT outbox_cleanup()'), 0, '... outbox_cleanup() answers');
$node->sql('DROP TRIGGER hang ON inbox');
eventually { $node->sql(q{SELECT dispatched FROM inbox WHERE message_id = 'b1'}) eq 't' } 'the trigger is dropped: it is marked';
is($node->sql('SELECT outbox_cleanup()'), 0, '... records expire again');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# The process ends with its dispatcher, and another one is started.
$first = $node->bookkeeper;
$node->sql("SELECT pg_terminate_backend($dispatcher)");
eventually { $node->bookkeeper =~ /^\d+$/ && $node->bookkeeper ne $first } 'the dispatcher ends: there is another bookkeeper';
$node->handle('c1', 'own');
is($node->sql(q{SELECT outbox_wait('c1', 'own', '3 min')}), 't', '... which marks');
$first = $node->bookkeeper;
$node->sql("SELECT pg_terminate_backend($first)");
$node->handle('c2', 'own');
is($node->sql(q{SELECT outbox_wait('c2', 'own', '3 min')}), 't', 'the bookkeeper is ended: another one marks');

# DROP DATABASE and its like get their lock though a trigger hangs.
$node->sql('CREATE DATABASE victim TEMPLATE template0');
$node->create_hang('victim');
$node->sql($_, 'victim') foreach 'CREATE EXTENSION outbox', <<'END_OF_SQL';
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE TRIGGER hang BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION hang();
SELECT outbox_create_endpoint('own', record_table => 'inbox');
BEGIN;
SELECT outbox_begin('m', 'own');
SELECT outbox_commit();
COMMIT;
END_OF_SQL
eventually { $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'victim' AND wait_event = 'PgSleep'}) == 1 } 'a trigger hangs in a database';
$node->sql('DROP DATABASE victim');
is($node->sql(q{SELECT count(*) FROM pg_database WHERE datname = 'victim'}), 0, '... that can be dropped');
$node->sql(q{CREATE TRIGGER hang BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION hang()});
$node->handle('d1', 'own');
eventually { $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) == 1 } 'a trigger hangs once more';
$node->stop('fast');
pass('... and the server stops');
$node->append_conf('postgresql.conf', 'outbox.dispatch = off');
$node->start;
$node->sql('DROP TRIGGER hang ON inbox');
$node->append_conf('postgresql.conf', 'outbox.dispatch = on');
$node->reload;
eventually { $node->sql(q{SELECT outbox_wait('d1', 'own', '3 min')}) eq 't' } 'what was not marked is marked after that';

# No worker slot is free for the process: messages are sent, and outbox.status says why nothing is marked.
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_logical_replication_workers = 0");
$node->restart;
$node->handle('e1', 'own');
eventually { grep { $_ eq 'e1' } $redis->bodies('d') } 'there are no more worker slots: messages are sent';
eventually { $node->status('problem') =~ /no worker slot is free/ } '... status says that they are not marked';
is($node->sql(q{SELECT dispatched FROM inbox WHERE message_id = 'e1'}), 'f', '... which is so');
is($node->sql('SELECT outbox_cleanup()'), 0, '... outbox_cleanup() answers');
$node->sql(q{SELECT outbox_drop_endpoint(name, true) FROM outbox.endpoint WHERE record_table IS NOT NULL});
eventually { $node->status('problem IS NULL') eq 't' } '... nothing is wrong while no endpoint has a table';
$node->sql(q{SELECT outbox_create_endpoint('own', record_table => 'inbox')});
eventually { $node->status('problem') =~ /no worker slot is free/ } '... and one that gets a table again has it said again';
$node->append_conf('postgresql.conf', 'max_worker_processes = 20');
$node->restart;
is($node->sql(q{SELECT outbox_wait('e1', 'own', '3 min')}), 't', 'there are more: it is marked');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

done_testing();
