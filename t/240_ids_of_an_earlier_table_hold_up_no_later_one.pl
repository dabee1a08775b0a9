# Records in custom record tables are marked, although the endpoint had another table
# before, with ids that are not valid uuids, or although a message of theirs was deferred,
# dumped and restored.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\noutbox.max_attempts = 1");
my $uuid = '2d931510-d99f-494a-8c67-87feb05e1594';

$node->sql(<<'END');
CREATE TABLE texts (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON texts (dispatched_at);
CREATE TABLE others (LIKE texts INCLUDING ALL);
CREATE TABLE uuids (message_id uuid PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON uuids (dispatched_at);
SELECT outbox_create_endpoint('e', record_table => 'texts', retention => '1 hour');
SELECT outbox_create_endpoint('f', record_table => 'others', retention => '1 hour');
END

$node->sql(q{SELECT outbox_pause()});
$node->handle($_, 'e') for 'm1', '{' . uc($uuid), '2d93-1510';
$node->sql(q{SELECT outbox_alter_endpoint('e', record_table => 'uuids'), outbox_resume()});
$node->handle($uuid, 'e');
is($node->sql("SELECT outbox_wait('$uuid', 'e', '3 min')"), 't', 'a record in a table of uuids is marked behind ids that are none');
is($node->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'marking'}), '0', '... which are no problem');

# The restored database sends a dead message, whose record was passed over before.
$redis->refuse('key');
$node->handle($_, 'f', stream => 'key') for 'm2', 'damaged';
eventually { $node->status('dead') eq '2' } 'two messages are dead';
$node->sql(q{UPDATE outbox.deferred SET body = NULL WHERE cause = 'damaged'});
foreach my $id ('m3', 'm4')
{
	$node->handle($id, 'f');
	$node->sql("SELECT outbox_wait('$id', 'f', '3 min')");
}
is($node->sql(q{SELECT dispatched IS TRUE FROM others WHERE message_id = 'm2'}), 'f', '... and its record is not marked');
eventually { $node->sql(q{SELECT bool_and(outbox.is_to_propagate(tx)) IS NOT TRUE FROM (SELECT tx FROM outbox.log_0 WHERE dest IS NULL) l}) eq 't' } '... but was passed over, as is on disk';
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'a dump');
$node->sql('CREATE DATABASE restored');
$redis->accept('key');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $node->connstr('restored'), $dump ], '... is restored, without what is damaged');
is($node->sql(q{SELECT outbox_wait('m2', 'f', '3 min')}, 'restored'), 't', '... its message is sent, and its record marked');
is($redis->count('key'), 1, '... once');

done_testing();
