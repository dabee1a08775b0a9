# A dump and pg_upgrade keep the setting that an endpoint has a custom record table, and
# what is still to be marked there.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $redis = Redis->new;
my $conf = "outbox.takeover_delay = '1s'\noutbox.redis_data_loss = resume";
my $old = Outbox->create('old', redis => $redis, conf => $conf);
my $new = Outbox->create('new', redis => $redis, conf => $conf, started => 0);
my $bin = $old->config_data('--bindir');
my $folder = PostgreSQL::Test::Utils::tempdir();

$old->sql(<<'END');
CREATE SCHEMA shop;
CREATE TABLE shop."In Box" (n bigserial PRIMARY KEY, ref text UNIQUE, done boolean, done_at timestamptz);
CREATE INDEX ON shop."In Box" (done_at);
SELECT outbox_create_endpoint('shop', 'pessimistic', '2 days', 'shop."In Box"', '{"message_id": "ref", "dispatched": "done", "dispatched_at": "done_at"}');
END

sub check
{
	my ($node, $database) = @_;
	is($node->sql(q{SELECT name, concurrency, retention, record_table, records FROM outbox.endpoints WHERE name = 'shop'}, $database),
		'shop|pessimistic|2 days|shop."In Box"|2', "the endpoint is there in $database");
	is($node->sql(q{SELECT outbox_begin('m1', 'shop'), outbox_begin('m2', 'shop')}, $database), 'f|f', '... and knows its ids');
	is($node->sql(q{SELECT ref, done FROM shop."In Box" ORDER BY 1}, $database), "m1|t\nm2|f", '... of which one is still to be marked');
	return;
}

sub check_later
{
	my ($node, $database) = @_;
	is($node->sql(q{SELECT outbox_wait('m2', 'shop', '3 min')}, $database), 't', "what was not marked is in $database");
	$node->handle('m3', 'shop', database => $database);
	is($node->sql(q{SELECT outbox_wait('m3', 'shop', '3 min')}, $database), 't', '... and what comes now');
	is($node->sql(q{SELECT count(*) FROM shop."In Box" WHERE done AND done_at > now() - interval '10 minutes'}, $database), 3, 'the table says so');
	eventually { $node->status('problem IS NULL', $database) eq 't' } 'nothing is wrong' or diag $node->status('problem', $database);
	return;
}

$old->handle('m1', 'shop');
is($old->sql(q{SELECT outbox_wait('m1', 'shop', '3 min')}), 't', 'one message is sent');
ok($old->poll_query_until('postgres', 'SELECT published = number FROM outbox.window_0 ORDER BY number DESC LIMIT 1'), '... as is noted');
$redis->stop;
$old->handle('m2', 'shop');

$old->command_ok([ 'pg_dump', '--format=custom', '--file', "$folder/dump", $old->connstr('postgres') ], 'pg_dump');
$old->sql('CREATE DATABASE restored');
$old->command_ok([ 'pg_restore', '--exit-on-error', '--jobs=2', '--dbname', $old->connstr('restored'), "$folder/dump" ], 'pg_restore');
check($old, 'restored');
isnt($old->sql('SELECT record_table::oid FROM outbox.endpoint', 'restored'), $old->sql('SELECT record_table::oid FROM outbox.endpoint'), 'it is another table');

# The dispatcher runs before the indexes are created.
$old->sql('CREATE DATABASE slow');
$old->command_ok([ 'pg_restore', '--exit-on-error', '--section=pre-data', '--section=data', '--dbname', $old->connstr('slow'), "$folder/dump" ],
	'pg_restore without indexes');
like($old->sql_error(q{SELECT outbox_begin('m1', 'shop')}, 'slow'), qr/^55000/, 'the endpoint cannot be used before its indexes are there');
$redis->start;
check_later($old, 'restored');
eventually { $old->status('problem', 'slow') =~ /unique index/ } 'status says so';
$redis->stop;
$old->command_ok([ 'pg_restore', '--exit-on-error', '--section=post-data', '--dbname', $old->connstr('slow'), "$folder/dump" ], '... and the indexes');
$redis->start;
check_later($old, 'slow');

# The endpoint may come after its messages have been sent.
$old->sql('CREATE DATABASE late');
my ($lines) = run_command([ 'pg_restore', '--list', "$folder/dump" ]);
my @endpoint = grep { /TABLE DATA outbox endpoint / } split /\n/, $lines;
is(scalar @endpoint, 1, 'the dump has endpoints');
PostgreSQL::Test::Utils::append_to_file("$folder/first", join "\n", grep { !/TABLE DATA outbox endpoint / } split /\n/, $lines);
PostgreSQL::Test::Utils::append_to_file("$folder/then", "$endpoint[0]\n");
restore_what("$folder/first");
eventually { $old->sql('SELECT count(*) FROM outbox.window_0 WHERE propagated = number AND number > 1', 'late') > 0 } 'its messages are sent';
restore_what("$folder/then");
check_later($old, 'late');

sub restore_what
{
	my ($list) = @_;
	$old->command_ok([ 'pg_restore', '--exit-on-error', '--use-list', $list, '--dbname', $old->connstr('late'), "$folder/dump" ], "pg_restore of $list");
	return;
}

# pg_upgrade of the original keeps what waits there.
eventually { $old->sql(q{SELECT done FROM shop."In Box" WHERE ref = 'm2'}) eq 't' } 'the original marks its own';
$redis->stop;
$old->handle('m4', 'shop');
$old->stop;
chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-b', $bin, '-B', $bin, '-d', $old->data_dir, '-D', $new->data_dir,
		'-s', $old->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
$new->start;
is($new->sql(q{SELECT outbox_begin('m2', 'shop'), outbox_begin('m4', 'shop')}), 'f|f', 'ids are known after pg_upgrade');
is($new->sql(q{SELECT done FROM shop."In Box" WHERE ref = 'm4'}), 'f', '... one is to be marked');
$redis->start;
is($new->sql(q{SELECT outbox_wait('m4', 'shop', '3 min')}), 't', '... and is');
is(scalar(grep { $_ eq 'm4' } $redis->bodies('d')), 1, 'its message was sent once');
eventually { $new->status('problem IS NULL') eq 't' } 'nothing is wrong';

done_testing();
