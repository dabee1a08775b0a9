# The ids of messages decide on their order within a window. Neither a restore into a
# database that is in use nor setting the sequence back disturbs that order, nor an extension
# that was created and rolled back; and outbox_wait() knows that the messages of restored
# records came separately.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $second = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
outbox.max_attempts = 1000000
END
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

sub enqueue
{
	my ($database, @messages) = @_;
	$node->sql("SELECT outbox_enqueue('d', '$_')", $database) foreach @messages;
	return;
}

sub current { return $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'}); }

# What is pending is in several segments, the first of which begins with sent messages, and a part is deferred.
$redis->refuse('refused');
$node->sql(q{SELECT outbox_enqueue('refused', 'r1')});
eventually { $node->status('deferred') == 1 } 'one message is refused';
eventually { $node->status('problem') =~ /^1 message waits for a destination that refuses it, and is retried\. See/ } '... which status says';
my $has_turned = sub { return current() > 0 && $node->sql(q{SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = 0}) eq 'empty' };
eventually
{
	$node->set('outbox.replay_window' => '1s');
	enqueue('postgres', 'sent');
	return 0 unless $has_turned->();
	$node->set('outbox.replay_window' => '1h');
	$node->sql('SELECT outbox_cleanup()');
	return $has_turned->();
}
'the log has wrapped around';
eventually { $node->status('pending = 1 AND deferred = 1') eq 't' } '... and is sent, but for the message that is refused';
$redis->stop;
my $segment = current();
my @pending = map { "p$_" } 1 .. 9;
enqueue('postgres', @pending[ 0 .. 2 ]);
$node->set('outbox.replay_window' => '1s');
eventually { current() != $segment } 'with Redis away the next segment is written';
cmp_ok(current(), '<', $segment, '... its number is lower');
enqueue('postgres', @pending[ 3 .. 7 ]);
$node->sql(qq{BEGIN; SELECT outbox_begin('m'); SELECT outbox_enqueue('refused', 'r2'); SELECT outbox_enqueue('d', '$pending[8]'); SELECT outbox_commit(); COMMIT});
$node->command_ok([ 'pg_dump', '--format=custom', '--file', $dump, $node->connstr('postgres') ], 'pg_dump');

$node->sql('CREATE DATABASE busy');
$node->sql("ALTER DATABASE busy SET outbox.redis_url = '@{[ $second->url ]}'");
$node->sql('CREATE EXTENSION outbox', 'busy');
$node->sql(q{SELECT outbox_enqueue('before', 'x') FROM generate_series(1, 1000)}, 'busy');
ok($node->wait_until_sent('busy'), 'a database that has sent messages');
$node->sql("ALTER DATABASE busy SET outbox.dispatch = off");
eventually { $node->status('dispatcher_state', 'busy') eq 'off' } '... dispatches no more for now';
enqueue('busy', 'a1', 'a2');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--data-only', '--dbname', $node->connstr('busy'), $dump ], '... while another one is restored into it');
enqueue('busy', 'a3', 'a4');
is($node->sql(q{SELECT outbox_wait('m', timeout => '0')}, 'busy'), 'f', 'outbox_wait knows that messages of a restored record are not sent');

# An administrator sets all sequences back.
$node->sql(q{SELECT setval('outbox.log_id_seq', 1)}, 'busy');
$node->sql(q{CREATE ROLE app; SELECT outbox_grant('app')}, 'busy');
is($node->sql(q{SET ROLE app; SELECT count(outbox_enqueue('d', 'a5'))}, 'busy'), 1, 'a sequence that was set back is set forward, whichever role draws from it');
enqueue('busy', 'a6');
$node->sql(q{SELECT setval('outbox.log_id_seq', 1)}, 'busy');
$node->restart;
eventually { $node->status('dispatcher_state', 'busy') eq 'off' } '... also after a restart';
enqueue('busy', 'a7', 'a8');
my $highest = $node->sql('SELECT max(id) FROM outbox.pending', 'busy');
$node->sql(q{SELECT setval('outbox.log_id_seq', 1)}, 'busy');
my @new_extension = ('BEGIN', 'DROP EXTENSION outbox', 'CREATE EXTENSION outbox', q{SELECT outbox_enqueue('d', 'lost')});
$node->sql(join('; ', @new_extension, 'ROLLBACK'), 'busy');
enqueue('busy', 'a9');
cmp_ok($node->sql('SELECT max(id) FROM outbox.pending', 'busy'), '>', $highest, '... and after another extension took its place and was rolled back');

$node->sql('ALTER DATABASE busy RESET outbox.dispatch');
is($node->sql(q{SELECT outbox_wait('m', timeout => '3 min')}, 'busy'), 't', 'outbox_wait knows when they are sent');
ok($node->wait_until_sent('busy'), 'all is sent');
is(join(' ', $second->bodies('d')), "a1 a2 @pending a3 a4 a5 a6 a7 a8 a9", '... what was restored in its order, behind what was there and before what came later');
is(join(' ', $second->bodies('refused')), 'r1 r2', '... also where it was deferred');

# An administrator sets the sequence to its end.
$node->sql(q{SELECT setval('outbox.log_id_seq', 9223372036854775807)}, 'busy');
like($node->sql_error(q{SELECT count(outbox_enqueue('end', 'x')) FROM generate_series(1, 65)}, 'busy'),
	qr/^2200H: sequence "outbox\.log_id_seq" has reached its maximum value/, 'a sequence that was set to its end is an error');
$node->sql(q{SELECT setval('outbox.log_id_seq', 1)}, 'busy');
is($node->sql(q{SELECT count(outbox_enqueue('end', 'x')) FROM generate_series(1, 65)}, 'busy'), 65, '... until it is set back');
ok($node->wait_until_sent('busy'), '... and what comes then is sent');

# An extension and its first messages are committed together.
$node->sql('CREATE DATABASE new');
$node->sql("ALTER DATABASE new SET outbox.redis_url = '@{[ $second->url ]}'");
my @first = map { "SELECT outbox_enqueue('new', 'n$_')" } 1 .. 5;
$node->sql(join('; ', 'BEGIN', 'CREATE EXTENSION outbox', @first[ 0 .. 1 ], 'COMMIT', $first[2]), 'new');
$node->sql($_, 'new') foreach @first[ 3 .. 4 ];
ok($node->wait_until_sent('new'), 'what was enqueued by the transaction that created the extension is sent');
is(join(' ', $second->bodies('new')), 'n1 n2 n3 n4 n5', '... before what came later');

# Without the triggers, rows would be restored into segments where they are not looked for.
$second->cli('DEL', 'd');
my $triggers = q{SELECT string_agg(format('%s %s', tgrelid::regclass, tgenabled), ' ' ORDER BY tgrelid, tgname) FROM pg_trigger WHERE tgname ~ 'restored|replicated'};
my $enabled = $node->sql($triggers, 'busy');
my $log = $node->log_position;
$node->command_ok([ 'pg_restore', '--exit-on-error', '--data-only', '--disable-triggers', '--dbname', $node->connstr('busy'), $dump ], 'pg_restore --disable-triggers');
like($node->log_since($log), qr/WARNING:  triggers of table "log_0" stay as they are/, '... leaves ours alone, with a warning');
eventually { $second->count('d') == 9 } '... so what it restores is sent';
is(join(' ', $second->bodies('d')), "@pending", '... in order');
is($node->sql($triggers, 'busy'), $enabled, '... and they are what they were');
is($node->sql('CREATE TABLE t (); ALTER TABLE t DISABLE TRIGGER ALL; SELECT 1', 'busy'), 1, "tables of others' are theirs");

done_testing();
