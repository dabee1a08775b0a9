# To which record a message belongs is known as long as it waits: in the log, among deferred
# messages, and in a dump. A copy that outbox_replay() makes has the cause, and belongs to none.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $folder = PostgreSQL::Test::Utils::tempdir();

sub handle
{
	my ($id, $endpoint) = @_;
	return $node->sql("BEGIN; SELECT outbox_begin('$id', '$endpoint'); SELECT outbox_enqueue('bad', '$id'), outbox_enqueue('good', '$id'); SELECT outbox_commit(); COMMIT");
}

# The records that deferred messages belong to, by what is in the tables. One that is just tried again is not seen there.
my $deferred = q{SELECT string_agg(d.dest || ' ' || coalesce(r.msgid, 'none'), ', ' ORDER BY d.id) FROM outbox.deferred d LEFT JOIN outbox.record_0 r USING (key) WHERE d.state = 'waiting'};

$node->sql(q{SELECT outbox_create_endpoint('other')});
$redis->refuse('bad');
handle('m1', 'default');
handle('m2', 'other');
$node->sql(q{SELECT outbox_enqueue('bad', 'of no record')});
eventually { $node->status('deferred, windows') eq '3|0' } 'what is refused is deferred';
eventually { $node->sql($deferred) eq 'bad m1, bad m2, bad none' } 'a deferred message belongs to the record that it was enqueued with';
is($node->sql(qq{SELECT outbox_wait('$$_[0]', '$$_[1]', '0')}), 'f', "... which is not sent: $$_[0]") foreach [ 'm1', 'default' ], [ 'm2', 'other' ];
is($node->sql(q{SELECT string_agg((key IS NULL)::text, ' ' ORDER BY id) FROM outbox.log_0 WHERE dest = 'good'}), 'true false',
	'the key of a record of the default endpoint is not written to the log');
$redis->accept('bad');
$node->sql(q{SELECT outbox_retry('bad')}) if $node->status('dead') > 0;
$node->wait_until_sent;
is($node->sql(qq{SELECT outbox_wait('$$_[0]', '$$_[1]')}), 't', "then it is: $$_[0]") foreach [ 'm1', 'default' ], [ 'm2', 'other' ];

# Copies are deferred, and pending.
$redis->refuse('good');
is($node->sql(q{SELECT outbox_replay('-infinity', 'good')}), 2, 'messages are replayed');
eventually { $node->status('deferred, windows') eq '2|0' } 'they are refused';
eventually { $node->sql($deferred) eq 'good none, good none' } 'a copy belongs to no record';
is($node->sql(qq{SELECT outbox_wait('$$_[0]', '$$_[1]', '0')}), 't', "... and is not waited for: $$_[0]") foreach [ 'm1', 'default' ], [ 'm2', 'other' ];
$redis->stop;
handle('m3', 'default');
handle('m4', 'other');
is($node->sql(q{SELECT outbox_replay('-infinity', 'bad')}), 3, 'others are replayed while Redis is away');

# The restored database has all of these in its log.
$node->command_ok([ 'pg_dump', '--file', "$folder/dump", $node->connstr('postgres') ], 'pg_dump');
$node->sql('CREATE DATABASE restored');
$node->sql('ALTER DATABASE restored SET outbox.dispatch = off');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$folder/dump", $node->connstr('restored') ], 'restore');
is($node->sql(q{SELECT count(*) FROM outbox.pending}, 'restored'), 9, 'all that is pending is restored');
is($node->sql(qq{SELECT outbox_wait('$$_[0]', '$$_[1]', '0')}, 'restored'), $$_[2], "$$_[0] is " . ($$_[2] eq 't' ? 'sent' : 'not sent') . ' there, too')
	foreach [ 'm1', 'default', 't' ], [ 'm2', 'other', 't' ], [ 'm3', 'default', 'f' ], [ 'm4', 'other', 'f' ];

done_testing();
