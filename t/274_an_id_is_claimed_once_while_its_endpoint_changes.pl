# An id is claimed once while its endpoint gets a record table, or loses it: also by sessions that have
# not been told of that yet, beside some that see it.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $source = dirname(__FILE__) . '/support/slow_commit.c';
my $module = PostgreSQL::Test::Utils::tempdir_short() . '/slow_commit.so';
my ($include) = run_command([ $ENV{PG_CONFIG} // 'pg_config', '--includedir-server' ]);
system_or_bail('cc', '-shared', '-fPIC', '-Wall', "-I$include", '-o', $module, $source);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $held = $node->data_dir . '/slow_commit';
$node->sql(<<'END');
CREATE TABLE inbox (message_id text COLLATE "C" PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at) WHERE dispatched;
SELECT outbox_create_endpoint('shop');
END
my ($administrator, $old) = ($node->session, $node->session);
$administrator->query_safe("LOAD '$module'");

# Changes the endpoint. Before that commit is over, a new session, which sees it, processes an id, and
# then one that was there and is not told yet.
sub is_claimed_once
{
	my ($msgid, $change, $what) = @_;
	my $new = $node->session;
	my $pid = $new->query_safe('SELECT pg_backend_pid()');

	$old->query_safe(q{BEGIN; SELECT outbox_begin('another', 'shop'); ROLLBACK});
	append_to_file($held, '');
	$administrator->query_until(qr/changing/, "\\echo changing\n$change;\n\\echo changed\n");
	eventually { -e "$held.reached" } "$what, and the commit is not over";

	$new->query_until(qr/processing/, <<"END");
\\echo processing
BEGIN;
SELECT outbox_begin('$msgid', 'shop');
SELECT outbox_commit();
COMMIT;
SELECT 'has ' || 'processed';
END
	eventually { $node->sql("SELECT state LIKE 'idle%' AND query LIKE '%processed%' OR wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid") eq 't' }
	'... a new session has processed an id, or waits';
	$old->query("BEGIN; SELECT outbox_begin('$msgid', 'shop'); SELECT outbox_commit(); COMMIT");
	unlink $held, "$held.reached";
	$administrator->query_until(qr/changed/, '');
	$new->query_until(qr/has processed/, '');
	is($node->sql("SELECT count(*) FROM outbox.records WHERE msgid = '$msgid'"), 1, '... the id was claimed once');
	$new->quit;
	return;
}

is_claimed_once('into the table', q{SELECT outbox_alter_endpoint('shop', record_table => 'inbox')}, 'an endpoint gets a record table');
is_claimed_once('out of it', q{SELECT outbox_alter_endpoint('shop', reset => '{record_table}')}, 'it loses the table');
is_claimed_once('from a savepoint', q{BEGIN; SAVEPOINT s; SELECT outbox_alter_endpoint('shop', record_table => 'inbox'); RELEASE s; COMMIT},
	'it gets the table again, in a savepoint');

done_testing();
