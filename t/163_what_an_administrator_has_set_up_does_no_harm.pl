# Defaults for new tables and for privileges, quoted names, a schema that somebody else owns, a standby,
# DROP EXTENSION while dispatch is off: the extension works all the same.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, init => { allows_streaming => 1 });

#
# ALTER DEFAULT PRIVILEGES and default_table_access_method.
#
$node->sql(<<'END');
CREATE ROLE mallory;
CREATE ROLE "Other role";
CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO mallory, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO mallory;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO mallory, "Other role" WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO mallory;
SET default_table_access_method = another;
CREATE EXTENSION outbox;
END
is($node->sql(q{SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND a.amname <> 'heap'}),
	0, 'tables are heaps, whatever new tables are');
is($node->sql(<<'END'), '', '... and no role has privileges on what was created, whatever the defaults are');
SELECT name, grantee FROM (
	SELECT oid::regclass::text, relowner, relacl FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'v', 'S')
	UNION ALL SELECT oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc
		WHERE pronamespace = 'outbox'::regnamespace OR proname LIKE 'outbox\_%'
	UNION ALL SELECT nspname, nspowner, nspacl FROM pg_namespace WHERE nspname = 'outbox') o (name, owner, acl), aclexplode(acl) a
WHERE a.grantee NOT IN (owner, 'pg_read_all_data'::regrole)
END
$node->sql('SELECT outbox_grant(\'"Other role"\')');
is($node->sql(q{SET ROLE "Other role"; SELECT outbox_enqueue('d', 'x', message_id => 'm')}), 'm', '... until outbox_grant() gives some');
ok($node->wait_until_sent, '... and what they enqueue is sent');

#
# quote_all_identifiers changes names that are made text.
#
my $dumped = q{SELECT c.relname, x.condition FROM pg_extension e, unnest(e.extconfig, e.extcondition) x (relation, condition) JOIN pg_class c ON c.oid = x.relation WHERE e.extname = 'outbox' ORDER BY 1};
my $expected = $node->sql($dumped);
$node->sql('DROP EXTENSION outbox CASCADE; SET quote_all_identifiers = on; CREATE EXTENSION outbox');
is($node->sql($dumped), $expected, 'dumps carry what they should, also with quote_all_identifiers');
$node->sql('DROP EXTENSION outbox CASCADE');

#
# The script of another extension may create triggers on the tables of this one no more than anybody else.
#
my $folder = $node->config_data('--sharedir') . '/extension';
PostgreSQL::Test::Utils::append_to_file("$folder/outbox_meddler.control", "default_version = '1.0'\n");
PostgreSQL::Test::Utils::append_to_file("$folder/outbox_meddler--1.0.sql", <<'END');
CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER meddle AFTER INSERT ON outbox.log_0 FOR EACH ROW EXECUTE FUNCTION public.meddle();
END
like($node->sql_error('CREATE EXTENSION outbox; CREATE EXTENSION outbox_meddler'), qr/^42809: cannot create trigger "meddle" on table "outbox\.log_0"/,
	'the script of another extension cannot create a trigger that would not fire');
PostgreSQL::Test::Utils::append_to_file("$folder/outbox_meddler--2.0.sql", 'ALTER TABLE outbox.log_0 DISABLE TRIGGER ALL;');
$node->sql("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS outbox; CREATE EXTENSION outbox_meddler VERSION '2.0'");
is($node->sql(q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 'outbox.log_0'::regclass AND tgenabled <> 'A'}), 0, '... nor switch ours off');
unlink "$folder/outbox_meddler.control", "$folder/outbox_meddler--1.0.sql", "$folder/outbox_meddler--2.0.sql";
$node->sql('DROP EXTENSION outbox_meddler; DROP EXTENSION outbox CASCADE');

#
# A schema that somebody else owns.
#
$node->sql('CREATE SCHEMA outbox AUTHORIZATION mallory');
like($node->sql_error('CREATE EXTENSION outbox SCHEMA outbox'), qr/^55000: schema "outbox" must not be open to others/, 'a schema that another role owns is refused');
$node->sql('ALTER SCHEMA outbox OWNER TO CURRENT_USER; GRANT CREATE ON SCHEMA outbox TO PUBLIC');
like($node->sql_error('CREATE EXTENSION outbox SCHEMA outbox'), qr/^55000: schema "outbox" must not be open to others/, '... and one in which others may create objects');
$node->sql('REVOKE CREATE ON SCHEMA outbox FROM PUBLIC; GRANT USAGE ON SCHEMA outbox TO mallory; CREATE EXTENSION outbox SCHEMA outbox');
$node->sql('DROP EXTENSION outbox CASCADE; DROP SCHEMA outbox; CREATE EXTENSION outbox');

#
# DROP EXTENSION.
#
$node->backup('backup');
my $standby = Outbox->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
like($standby->sql_error('DROP EXTENSION outbox'), qr/^25006: cannot execute DROP EXTENSION/, 'a standby says why it cannot drop the extension');
like($node->sql_error('BEGIN READ ONLY; DROP EXTENSION outbox'), qr/^25006: cannot execute DROP EXTENSION/, '... and so does a read-only transaction');
$standby->stop;

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->sql('DROP EXTENSION outbox');
eventually { scalar($node->dispatchers) == 0 } 'the dispatcher leaves when the extension is dropped';
$node->set('outbox.dispatch' => 'on');
$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_enqueue('d', 'y')});
eventually { $redis->count('d') == 2 } '... and comes again with it';

done_testing();
