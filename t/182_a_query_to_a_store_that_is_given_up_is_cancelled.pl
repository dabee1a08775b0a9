# A query to a PostgreSQL store that is given up is cancelled there, too, so queries do
# not pile up behind a lock. An answer that is neither true nor false is an error.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $server->store_url('shard') . "')");

sub queries { return $server->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'shard' AND state = 'active'}); }

$node->sql(q{BEGIN; SELECT outbox_begin('m 0', 'stored'), outbox_commit(); COMMIT});
eventually { $server->sql('SELECT sum(n_live_tup) FROM pg_stat_all_tables WHERE relname ~ \'^record_\'') > 0 } 'an id comes to the store';
my $locker = $server->session;
$locker->query_safe('BEGIN; LOCK TABLE outbox.endpoint IN ACCESS EXCLUSIVE MODE');
like($node->sql_error(qq{SET outbox.command_timeout = '300ms'; BEGIN; SELECT outbox_begin('m $_', 'stored')}), qr/^08006: could not look up the message in the deduplication store/, "somebody has locked it, a look is given up: $_")
  foreach 1 .. 10;
eventually { queries() <= 1 } '... and what was given up ends there';
$locker->query_safe('ROLLBACK');
is($node->sql(q{BEGIN; SELECT outbox_begin('m 1', 'stored'); ROLLBACK}), 't', 'the lock is gone, the store answers');

# A function of somebody else.
$server->sql(q{CREATE DATABASE other});
$server->sql(<<'END_OF_SQL', 'other');
CREATE SCHEMA outbox;
CREATE FUNCTION outbox.store_contains(uuid) RETURNS text LANGUAGE sql AS $$SELECT 'maybe'$$;
CREATE FUNCTION outbox.store_retention() RETURNS bigint LANGUAGE sql AS 'SELECT 1000000::bigint';
GRANT USAGE ON SCHEMA outbox TO shard;
END_OF_SQL
my $url = $server->store_url('shard') =~ s/postgres\?/other?/r;
$node->sql("SELECT outbox_alter_endpoint('stored', dedup_store => '$url')");
like($node->sql_error(q{BEGIN; SELECT outbox_begin('m 1', 'stored')}), qr/^08006: .*unexpected answer/, 'an answer that is neither t nor f is an error');

# Planner settings that are meant for queries do not affect the processes of the extension.
$node->sql("ALTER DATABASE postgres SET $_") foreach 'geqo = on', 'enable_indexscan = off', 'random_page_cost = 1000';
$node->sql(<<'END_OF_SQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.note := concat_ws(' ', current_setting('geqo'), current_setting('enable_indexscan'), current_setting('random_page_cost'));
	RETURN NEW;
END
$$;
CREATE TRIGGER note BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION note();
SELECT outbox_create_endpoint('own', record_table => 'inbox');
END_OF_SQL
$node->sql(q{BEGIN; SELECT outbox_begin('m', 'own'), outbox_commit(); COMMIT});
eventually { ($node->sql('SELECT note FROM inbox')) eq 'off on 4' } 'the planner settings of a database do not reach our statements';

done_testing();
