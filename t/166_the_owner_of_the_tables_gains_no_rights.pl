# A role may own the tables of the extension that is no superuser: it was one when it created the
# extension, or it was given them by REASSIGN OWNED. Then messages are sent all the same, and
# what it adds to the tables runs with its own rights, whoever writes to them.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.cleanup_interval = '50ms'
outbox.replay_window = '1s'
outbox.retention = '2s'
outbox.max_attempts = 3
END
my @as_keeper = (extra_params => [ '-U', 'keeper' ]);

$node->sql('CREATE ROLE keeper LOGIN SUPERUSER; CREATE DATABASE kept; CREATE DATABASE given');
$node->sql('CREATE EXTENSION outbox', 'kept', @as_keeper);
$node->sql('CREATE EXTENSION outbox', 'given', @as_keeper);
$node->sql('CREATE ROLE heir LOGIN; REASSIGN OWNED BY keeper TO heir', 'given');
$node->sql('ALTER ROLE keeper NOSUPERUSER');

# What a role tries at each table of the extension, as whom it was run.
my $traps = <<'SQL';
CREATE SCHEMA traps;
CREATE TABLE traps.sprung (as_whom text);
CREATE FUNCTION traps.spring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO traps.sprung VALUES (current_user);
	BEGIN
		EXECUTE 'SET LOCAL ROLE NONE';
		EXECUTE format('ALTER ROLE %I SUPERUSER', (SELECT relowner::regrole::text FROM pg_class WHERE oid = tg_relid));
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	RETURN coalesce(NEW, OLD);
END
$$;
CREATE FUNCTION traps.note() RETURNS void LANGUAGE sql AS 'INSERT INTO traps.sprung VALUES (current_user)';
CREATE FUNCTION traps.spring(id bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM traps.note(); RETURN id; END';
CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON outbox.instance FOR EACH ROW EXECUTE FUNCTION traps.spring();
CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON outbox.ring FOR EACH ROW EXECUTE FUNCTION traps.spring();
CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON outbox.era FOR EACH ROW EXECUTE FUNCTION traps.spring();
CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON outbox.endpoint FOR EACH ROW EXECUTE FUNCTION traps.spring();
CREATE INDEX ON outbox.log_0 (traps.spring(id));
CREATE INDEX ON outbox.log_1 (traps.spring(id));
CREATE INDEX ON outbox.log_2 (traps.spring(id));
CREATE INDEX ON outbox.log_3 (traps.spring(id));
CREATE INDEX ON outbox.log_0 (traps.spring(0));
CREATE INDEX ON outbox.log_1 (traps.spring(0));
CREATE INDEX ON outbox.log_2 (traps.spring(0));
CREATE INDEX ON outbox.log_3 (traps.spring(0));
CREATE INDEX ON outbox.deferred (traps.spring(id));
SQL

foreach my $case ([ 'kept', 'keeper' ], [ 'given', 'heir' ])
{
	my ($database, $owner) = @$case;
	my @as_owner = (extra_params => [ '-U', $owner ]);

	is($node->sql(q{SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace = 'outbox'::regnamespace}, $database),
		$owner, "$database: the tables belong to $owner");
	$node->sql("ALTER DATABASE $database OWNER TO $owner");
	$node->sql($traps, $database, @as_owner);
	$node->sql(<<'END', $database);
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('tabled', record_table => 'inbox');
SELECT outbox_set_destination('spread', partitions => 2);
END
	$redis->command('SET', 'refuses', 'text');
	$node->sql(qq{SELECT outbox_enqueue('$database', 'x'), outbox_enqueue('spread', 'x', key => 'k'), outbox_enqueue('refuses', 'x')}, $database);
	$node->sql(q{SET outbox.retention = '1h'; SELECT outbox_begin('m', 'tabled'), outbox_enqueue('d', 'x'), outbox_commit()}, $database);
	eventually { $redis->count($database) == 1 } 'a message is sent';
	eventually { $node->sql('SELECT dispatched FROM inbox', $database) eq 't' } '... a record is marked';
	eventually { $node->status('dead', $database) == 1 } '... what is refused dies';
	is($node->sql('SELECT outbox_retry()', $database), 1, '... and is retried');
	eventually { $node->sql(q{SELECT count(DISTINCT segment) FROM outbox.ring WHERE state <> 'empty' AND ring = 'log' AND segment > 0}, $database) > 0 }
		'... and the rings go round';

	is($node->sql('SELECT string_agg(DISTINCT as_whom, $$, $$) FROM traps.sprung', $database), $owner, 'what the owner has added was run as the owner alone');
	is($node->sql(qq{SELECT rolsuper FROM pg_roles WHERE rolname = '$owner'}), 'f', '... who is no superuser');

	# A server connects to a store as its own user.
	my $url = $store->url;
	$node->sql(qq{INSERT INTO outbox.endpoint (name, dedup_store) VALUES ('stored', '$url')}, $database, @as_owner);
	like($node->sql_error(q{BEGIN; SELECT outbox_begin('m', 'stored')}, $database), qr/^22023: could not look up the message in the deduplication store: its URL is invalid/,
		'a store that the owner of the tables has named is not asked');
	is($node->sql(q{SELECT dedup_store FROM outbox.endpoints WHERE name = 'stored'}, $database), $url, '... although the view shows it');
	my $session = $node->session($database);
	my $is_asked = sub
	{
		$session->query(q{BEGIN; SELECT outbox_begin('m', 'stored')});
		my $goes_on = $session->query('SELECT 1') eq '1';

		$session->query('ROLLBACK');
		return $goes_on;
	};
	ok(!$is_asked->(), '... by no session');
	$node->sql("ALTER ROLE $owner SUPERUSER", $database);
	ok($is_asked->(), '... until that role is a superuser');
	$node->sql("ALTER ROLE $owner NOSUPERUSER", $database);
	ok(!$is_asked->(), '... and as long as it is');
	$session->quit;
	$node->sql(qq{ALTER TABLE outbox.endpoint OWNER TO CURRENT_USER; GRANT SELECT ON outbox.endpoint TO $owner}, $database);
	is($node->sql(q{BEGIN; SELECT outbox_begin('m', 'stored'); ROLLBACK}, $database), 't', '... and when the table belongs to a superuser');
	is($node->sql(q{SELECT dedup_store FROM outbox.endpoints WHERE name = 'stored'}, $database), $url, '... where the view shows it, too');
}

# Nor does a role that enqueues gain those of the owner, whose functions run for an index.
$node->sql(<<'SQL');
CREATE FUNCTION folded(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN lower($1); END';
CREATE INDEX ON outbox.log_0 (public.folded(dest));
CREATE INDEX ON outbox.log_1 (public.folded(dest));
CREATE INDEX ON outbox.log_2 (public.folded(dest));
CREATE INDEX ON outbox.log_3 (public.folded(dest));
CREATE ROLE caller LOGIN;
SELECT outbox_grant('caller');
CREATE SCHEMA lure AUTHORIZATION caller;
SQL
$node->sql(<<'SQL', 'postgres', extra_params => [ '-U', 'caller' ]);
CREATE TABLE lure.sprung (as_whom text);
CREATE FUNCTION lure.lower(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO lure.sprung VALUES (current_user);
	RETURN pg_catalog.lower($1);
END
$$;
SET search_path = lure, pg_catalog, public;
SELECT outbox_enqueue('Lured', 'x');
SQL
is($node->sql('SELECT count(*) FROM lure.sprung'), 0, 'what a function for an index calls is not found in the search_path of whoever enqueues');
eventually { $redis->count('Lured') == 1 } '... and the message is sent';

done_testing();
