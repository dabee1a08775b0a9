# A dump whose snapshot is much older than its locks would lack records that were
# compacted meanwhile, or messages that were deferred: it fails, and the next one is complete.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => $Compaction::small_segments);
my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';
my $retired = q{SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND state = 'retired' AND compacted_into IS NOT NULL};

prepare($node);
fill($node, 5);
eventually { is_at_rest($node) } 'five segments are full';
my $session = $node->session;
my $snapshot = $session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
fill($node, 1);
eventually { $node->sql($retired) == 6 } 'they are compacted after a snapshot was taken';
my @dump = ('pg_dump', '--file', $file);
$node->command_ok([ @dump, "--snapshot=$snapshot", $node->connstr('postgres') ], 'a dump with that snapshot succeeds');

# Makes it seem that five minutes have passed; or that a clock was ahead, and was set back.
$node->sql(q{UPDATE outbox.ring SET since = since + CASE WHEN segment % 2 = 0 THEN interval '-6 min' ELSE interval '1 year' END,
	generation = (SELECT max(generation) + 1 FROM outbox.ring) WHERE state = 'retired'});
fill($node, 1);
eventually { $node->sql($retired) == 0 } 'after a while their segments are emptied all the same';
$node->command_checks_all([ @dump, "--snapshot=$snapshot", $node->connstr('postgres') ],
	1, [], [qr/tables of the outbox were emptied after the snapshot and before the locks of this dump/], 'a dump with that snapshot fails now');
$node->command_ok([ @dump, $node->connstr('postgres') ], 'one with a new snapshot does not');
$node->sql('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-f', $file, $node->connstr('restored') ], '... and is restored');
is(unknown($node, 1, claimed($node), database => 'restored', every => 5), 0, '... with all records');
$session->quit;

#
# What waits for a lock with an old snapshot may be a dump, for which they are kept; also where the
# owner of the tables is a role that does not see what sessions of others do.
#
$node->sql('CREATE ROLE keeper LOGIN SUPERUSER; CREATE DATABASE kept');
$node->sql('CREATE EXTENSION outbox', 'kept', extra_params => [ '-U', 'keeper' ]);
$node->sql('ALTER ROLE keeper NOSUPERUSER');
prepare($node, 'kept');
$node->sql('CREATE TABLE locked ()', 'kept');
fill($node, 5, 'kept');
eventually { is_at_rest($node, 'kept') } 'five segments are full in a database with another owner';
my $locker = $node->session('kept');
my $waiter = $node->session('kept');
$locker->query_safe('BEGIN; LOCK TABLE locked');
$waiter->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM claimed');
$waiter->query_until(qr/waits/, "\\echo waits\nSELECT count(*) FROM locked;\n");
eventually { $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'kept' AND wait_event_type = 'Lock'}) == 1 } 'a session waits for a lock';
fill($node, 1, 'kept');
eventually { $node->sql($retired, 'kept') == 6 } 'they are compacted meanwhile';
$node->sql(q{UPDATE outbox.ring SET since = since - interval '6 min', generation = (SELECT max(generation) + 1 FROM outbox.ring) WHERE state = 'retired'}, 'kept');
$node->sql('SELECT outbox_cleanup()', 'kept') foreach 1 .. 3;
is($node->sql($retired, 'kept'), 6, '... and kept as long as it waits');
$locker->quit;
eventually { $node->sql($retired, 'kept') == 0 } '... and no longer';
$waiter->quit;
$node->sql('DROP DATABASE kept');

#
# A message is in the log when the snapshot is taken, and deferred when the log has been emptied.
#
sub is_refused { return $node->sql(q{SELECT state FROM outbox.pending WHERE dest = 'refused'}); }
$node->sql('DROP DATABASE restored');
$redis->refuse('refused');
$node->set('outbox.dispatch' => 'off', 'outbox.max_attempts' => 1000000);
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->sql(q{SELECT outbox_enqueue('refused', 'waits')});
my $segment = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
$session = $node->session;
$snapshot = $session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
$node->set('outbox.dispatch' => 'on', 'outbox.replay_window' => '1s', 'outbox.cleanup_interval' => '100ms');
eventually
{
	is_refused() eq 'deferred' && $node->sql("SELECT pg_relation_size('outbox.log_$segment')") == 0
}
'after a snapshot was taken a message is deferred, and the log is emptied';
$node->command_checks_all([ @dump, "--snapshot=$snapshot", $node->connstr('postgres') ],
	1, [], [qr/tables of the outbox were emptied after the snapshot and before the locks of this dump/], 'a dump with that snapshot fails');
$session->quit;

# Otherwise a dump that takes longer than a second for its locks would come too late again.
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off again';
$node->command_ok([ @dump, $node->connstr('postgres') ], 'a dump with a new snapshot does not fail');
$node->sql('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', "$file.out", '-f', $file, $node->connstr('restored') ], '... and is restored');
is($node->sql(q{SELECT count(*) FROM outbox.pending WHERE dest = 'refused'}, 'restored'), 1, '... with the message');

done_testing();
