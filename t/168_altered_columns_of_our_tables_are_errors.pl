# The owner of the tables gives columns other types, or drops NOT NULL, or puts something else
# in the place of a table. What reads them gets an error, and nothing else happens: no number is
# taken for a pointer. When they are altered back, all goes on.

use strict;
use warnings FATAL => 'all';

use Compaction ();
use Outbox;
use Redis;
use RedisCluster;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retry_delay = '100ms'
END

$node->sql(<<'END');
SELECT outbox_create_endpoint('e', retention => '1 hour');
SELECT outbox_set_destination('d', 'stream of d');
SELECT outbox_pause('paused');
SELECT outbox_enqueue('paused', 'x'), outbox_send('d', 'x');
BEGIN; SELECT outbox_begin('m', 'e'), outbox_enqueue('d', 'x'), outbox_commit(); COMMIT;
BEGIN; SELECT outbox_begin('f', 'e'), outbox_enqueue('d', 'x'), outbox_commit(); COMMIT;
SELECT outbox_forget('f', 'e');
END
eventually { $node->status('deferred') == 1 && $redis->count('stream of d') == 3 } 'there are rows in the tables';
my $started = $node->sql('SELECT pg_postmaster_start_time()');

# Alters each column in a transaction of its own, does in it what a session can do, and what the
# owner can write to the table, and rolls it back. Errors are what is expected.
$node->sql(<<'SQL');
CREATE FUNCTION insert_into(own_table regclass) RETURNS text LANGUAGE sql AS $$
	SELECT format('INSERT INTO %s VALUES (%s)', own_table, string_agg(CASE
			WHEN own_table::text ~ 'log_' AND attname IN ('message_id', 'endpoint', 'msgid') THEN 'NULL'
			WHEN atttypid = 'uuid'::regtype THEN 'gen_random_uuid()'
			WHEN atttypid = 'timestamptz'::regtype THEN 'now()'
			WHEN atttypid = 'pg_snapshot'::regtype THEN quote_literal('3:3:')
			WHEN attname = 'state' THEN quote_literal('dead')
			ELSE quote_literal('1') END, ', ' ORDER BY attnum))
	FROM pg_attribute WHERE attrelid = own_table AND attnum > 0
$$;
CREATE PROCEDURE try_all() LANGUAGE plpgsql AS $$
DECLARE
	alteration text;
	altered_table regclass;
	altered integer := 0;
	act text;
	acts text[] := ARRAY[
		$q$SELECT * FROM outbox.status$q$, $q$SELECT * FROM outbox.problems$q$, $q$SELECT * FROM outbox.endpoints$q$, $q$SELECT * FROM outbox.destinations$q$,
		$q$SELECT * FROM outbox.pending$q$, $q$SELECT * FROM outbox.records$q$, $q$SELECT * FROM outbox.dead_letters$q$, $q$SELECT * FROM outbox.deferred$q$,
		$q$SELECT outbox_begin('n', 'e'), outbox_enqueue('d', 'y'), outbox_commit()$q$, $q$SELECT outbox_begin('m', 'e')$q$,
		$q$SELECT outbox_forget('m', 'e')$q$, $q$SELECT outbox_replay('-infinity')$q$, $q$SELECT outbox_create_endpoint('f')$q$];
BEGIN
	FOR alteration, altered_table IN
		SELECT format('ALTER TABLE outbox.%I ALTER %I %s', c.relname, a.attname, how), c.oid::regclass
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid,
			LATERAL unnest(CASE WHEN a.attnotnull THEN ARRAY['DROP NOT NULL'] ELSE ARRAY[]::text[] END ||
				ARRAY['TYPE bigint USING 1', $q$TYPE text USING 'BBBBBBBB'$q$]) how
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
			AND c.relname !~ '_([1-9]|1[0-9]|2[0-9])$'
	LOOP
		BEGIN
			EXECUTE alteration;
			altered := altered + 1;
			FOREACH act IN ARRAY acts || insert_into(altered_table) || $q$UPDATE outbox.deferred SET state = 'discarded'$q$::text LOOP
				BEGIN
					EXECUTE act;
				EXCEPTION WHEN OTHERS THEN
					NULL;
				END;
			END LOOP;
			RAISE EXCEPTION USING ERRCODE = 'OUT00';
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
		COMMIT;
	END LOOP;
	RAISE NOTICE '% columns were altered', altered;
END
$$;
SQL
$node->sql('CALL try_all()');

# Whoever owns the trigger functions can have them fired by any table.
foreach my $fires ([ 'redirect_restored()', 'INSERT' ], [ 'discarded()', 'UPDATE' ], [ 'discarded()', 'INSERT' ], [ 'check_endpoint()', 'INSERT' ])
{
	my ($function, $event) = @$fires;
	my $when = $function eq 'discarded()' ? 'AFTER' : 'BEFORE';
	my (undef, undef, $error) = $node->psql('postgres', <<"SQL");
CREATE TEMP TABLE other (a int, b int, c int, d int);
INSERT INTO other VALUES (1, 1, 1, 1);
CREATE TRIGGER t $when $event ON other FOR EACH ROW EXECUTE FUNCTION outbox.$function;
INSERT INTO other VALUES (1, 1, 1, 1);
UPDATE other SET a = 2;
SQL
	like($error, qr/ERROR:  .*(must be fired (?:by|AFTER) |table "outbox.other" has been altered)/, "$function refuses to be fired by $event on another table");
}

# What has no rows of its own cannot be read as a table of ours.
foreach my $other (
	[ 'loss', 'TABLE', 'PARTITION BY RANGE (noted_at)', 'SELECT * FROM outbox.problems' ],
	[ 'endpoint', 'TABLE', 'PARTITION BY RANGE (name)', q{SELECT outbox_begin('n')} ],
	[ 'log_id_seq', 'VIEW', 'AS SELECT 1::bigint, 2::bigint AS b, true AS c', q{SELECT outbox_enqueue('d', 'x') FROM generate_series(1, 200)} ])
{
	my ($name, $kind, $definition, $use) = @$other;
	my $columns = $kind eq 'TABLE' ? '(LIKE outbox.ours)' : '';
	my (undef, undef, $error) = $node->psql('postgres', <<"SQL");
BEGIN;
ALTER TABLE outbox.$name RENAME TO ours;
CREATE $kind outbox.$name $columns $definition;
$use;
SQL
	like($error, qr/ERROR:  "outbox\.$name" is not a (table|sequence)/, "a \L$kind\E $definition in the place of $name is refused");
}

# What was renamed is to be renamed back, and nobody looks for that if the extension is said to be gone.
foreach my $case (
	[ 'TABLE outbox.record_0', 'record_N' ], [ 'TABLE outbox.log_0', 'log_N' ], [ 'TABLE outbox.endpoint', 'endpoint' ],
	[ 'TABLE outbox.instance' ], [ 'SEQUENCE outbox.log_id_seq' ], [ 'SCHEMA outbox' ])
{
	my ($renamed, $name) = @$case;
	my $detail = $name ? qr/DETAIL:  It was created as outbox\.$name\.\n/ : qr//;
	my (undef, undef, $error) = $node->psql('postgres', <<"SQL");
BEGIN;
ALTER $renamed RENAME TO elsewhere;
SELECT outbox_begin('n', 'e'), outbox_enqueue('d', 'x');
SQL
	like($error, qr/ERROR:  a table of the extension "outbox" is not where it was created\n.*${detail}HINT:  Give the schema its name "outbox" back/s,
		"$renamed: an error says what to rename back");
}

# An empty segment that was renamed, or altered, does not become current: then nobody could claim.
my $records = Outbox->create('records', redis => $redis, conf => $Compaction::small_segments);
Compaction::prepare($records);
$records->sql('ALTER TABLE outbox.record_1 RENAME TO elsewhere; ALTER TABLE outbox.record_2 ALTER msgid TYPE bytea USING NULL; ALTER TABLE outbox.record_11 RENAME TO farther');
is($records->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'segment'}), 0, 'an empty segment that is not needed yet is no problem');
Compaction::fill($records, 1);
is($records->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'}), 3, 'a segment that is as it was becomes current');
like(slurp($records->logfile), qr/could not clean up outbox\.record_1: a table of the extension "outbox" is not where it was created/, '... and the log says which one is not where it was');
like(slurp($records->logfile), qr/could not clean up outbox\.record_2: table "outbox\.record_2" has been altered/, '... and which one has been altered');
is($records->sql(q{SELECT outbox_begin('m1')}), 'f', 'ids are known');
$records->restart;
is($records->sql(q{SELECT outbox_begin('m1')}), 'f', '... after a restart, too');

# One that has records is missed by whoever looks for an id, and by nobody else.
my $claims = $records->session;
my $look = q{SELECT outbox_begin('m1')};
is($claims->query($look), 'f', 'a session knows an id');
$records->sql('ALTER TABLE outbox.record_0 RENAME TO first');
like(scalar $records->sql_error($look), qr/^42P01: a table of the extension "outbox" is not where it was created/, 'an id is not taken for new while its segment cannot be read');
is($claims->query($look), '', '... nor by the session');
$records->sql(q{SELECT outbox_enqueue('of records', 'x')});
eventually { $redis->count('of records') == 1 } '... and messages are sent';
$records->sql('ALTER TABLE outbox.first RENAME TO record_0');
is($claims->query($look), 'f', 'when it has its name back, the session finds it');

# So is an id not taken for known while it cannot be seen that it was forgotten.
$claims->quit;
$records->sql(q{SELECT outbox_forget('m1')});
$records->restart;
$records->sql('ALTER TABLE outbox.forgotten RENAME TO unknown');
like(scalar $records->sql_error($look), qr/^42P01: a table of the extension "outbox" is not where it was created/, 'an id is not taken for known while it cannot be seen whether it was forgotten');
$records->sql('ALTER TABLE outbox.unknown RENAME TO forgotten');
is($records->process('m1'), 't', '... and is forgotten when the table has its name back');
$records->sql('ALTER TABLE outbox.elsewhere RENAME TO record_1; ALTER TABLE outbox.record_2 ALTER msgid TYPE text COLLATE "C" USING NULL; ALTER TABLE outbox.farther RENAME TO record_11');
eventually { $records->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'segment'}) == 0 } 'the problem ends when all are as they were';

# Which one cannot be counted is said, too.
Compaction::compact($records);
my ($compacted) = Compaction::compacted_segments($records);
my (undef, undef, $uncounted) = $records->psql('postgres', "BEGIN; ALTER TABLE outbox.history_$compacted RENAME TO elsewhere; SELECT * FROM outbox.endpoints");
like($uncounted, qr/is not where it was created\nDETAIL:  It was created as outbox\.history_N\./, 'an error of outbox.endpoints says what to rename back');

# A retired segment that was renamed is not emptied, which is a problem, until it has its name back.
foreach my $case ([ 'log', '' ], [ 'log', 'window' ], [ 'record', '' ])
{
	my ($ring, $other) = @$case;
	my $administrator = $records->session;
	my $retired = sub { $records->sql("SELECT segment FROM outbox.ring WHERE ring = '$ring' AND state = 'retired' LIMIT 1") };

	$administrator->query_safe('BEGIN; LOCK TABLE ' . join(', ', map { "outbox.${ring}_$_" } 0 .. ($ring eq 'log' ? 3 : 11)) . ' IN ACCESS SHARE MODE');
	$records->set('outbox.retention' => '1s', 'outbox.replay_window' => '1s');
	eventually
	{
		$records->process($ring . $other . rand);
		$records->sql(q{SELECT outbox_enqueue('of records', 'x')});
		$retired->() ne '';
	}
	"a segment of the $ring ring is retired";
	my $segment = $retired->();
	my $table = 'outbox.' . ($other || $ring) . "_$segment";
	my $named = qr/^.*\boutbox\.${ring}_$segment: a table of the extension "outbox" is not where it was created/;
	$administrator->query_safe("ALTER TABLE $table RENAME TO elsewhere; COMMIT");
	eventually { $records->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'segment'}) =~ $named } "$table that has another name is a problem";
	$administrator->query_safe("ALTER TABLE outbox.elsewhere RENAME TO ${\ ($table =~ s/^outbox\.//r)}");
	eventually { $records->sql(q{SELECT count(*) FROM outbox.problems WHERE kind = 'segment'}) == 0 && $retired->() eq '' } '... until it has its name back';
	$administrator->quit;
}

# Without its check constraint a table of the log can have rows that are neither messages nor receipts.
$node->sql('SELECT outbox_pause()');
eventually { $node->status('problem') =~ /^Everything is paused/ } 'everything is paused';
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
foreach my $case (
	[ 'body = NULL', 'outbox_enqueued()' ],
	[ 'body = NULL', 'outbox.pending' ],
	[ 'message_uuid = NULL', 'outbox_enqueued()' ],
	[ 'message_uuid = NULL', 'outbox.pending' ],
	[ 'dest = NULL', q{outbox_drop_endpoint('e')} ])
{
	my ($null, $use) = @$case;
	my (undef, undef, $error) = $node->psql('postgres', <<"SQL");
BEGIN;
ALTER TABLE outbox.log_0 DROP CONSTRAINT log_0_check;
SELECT outbox_enqueue('d', 'x');
UPDATE outbox.log_0 SET $null;
SELECT count(*) FROM $use;
SQL
	like($error, qr/ERROR:  row \d+ of the log is neither a message nor a receipt/, "$null: $use says what is wrong");
}
$node->sql('SELECT outbox_resume()');
eventually { $redis->count('stream of d') == 4 } 'the message that waited is sent';
$node->sql('ALTER TABLE outbox.log_0 DROP CONSTRAINT log_0_check');
$node->sql(q{BEGIN; SELECT outbox_enqueue('no body', 'x'); UPDATE outbox.log_0 SET body = NULL WHERE tx = pg_current_xact_id(); COMMIT});
eventually { $node->sql(q{SELECT last_error FROM outbox.destinations WHERE dest = 'no body'}) =~ /is neither a message nor a receipt/ } 'a message without a body is deferred';
$node->sql(q{UPDATE outbox.log_0 SET body = 'x' WHERE dest = 'no body'});
eventually { $redis->count('no body') == 1 } '... and sent when it has one';
is($node->sql('SELECT pg_postmaster_start_time()'), $started, 'what sessions do with altered columns does not end the server');
unlike(slurp($node->logfile), qr/terminated by signal/, '... nor a process');

sub slurp
{
	open my $file, '<', $_[0] or die "cannot read $_[0]: $!";
	local $/ = undef;
	return <$file>;
}

# The same for the dispatcher, which is to say what is wrong. Since 18 NOT NULL may hold for
# new rows only.
my $sent = 4;
my @later_not_null = ([ 'window_0', 'ALTER snapshot DROP NOT NULL, ADD NOT NULL snapshot NOT VALID', 'ALTER snapshot SET NOT NULL' ]);
@later_not_null = () if $node->sql('SHOW server_version_num') < 180000;
foreach my $case (
	[ 'window_0', 'ALTER snapshot DROP NOT NULL', 'ALTER snapshot SET NOT NULL' ],
	[ 'deferred', 'ALTER key TYPE bigint USING 1', 'ALTER key TYPE uuid USING NULL' ],
	@later_not_null)
{
	my ($table, $alter, $back) = @$case;

	$node->sql('SELECT outbox_pause()');
	eventually { $node->status('problem') =~ /^Everything is paused/ } "everything is paused";
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	$node->sql("ALTER TABLE outbox.$table $alter");
	$node->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher'});
	$node->sql('SELECT outbox_resume()');
	eventually { slurp($node->logfile) =~ /table "outbox\.$table" has been altered/ } "$table: the dispatcher says what is wrong";
	$node->sql("ALTER TABLE outbox.$table $back");
	$sent++;
	eventually { $redis->count('stream of d') == $sent } '... and goes on when it is as before';
}
unlike(slurp($node->logfile), qr/terminated by signal/, 'no process has crashed');

# Hash slots of a Redis Cluster that there cannot be.
my $clustered = Outbox->create('clustered', redis => RedisCluster->new(replicas => 0));
$clustered->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($clustered->wait_until_sent, 'a message is sent to a Redis Cluster');
foreach my $case (
	[ 'INSERT INTO outbox.lane VALUES (-2000000000)', 'DELETE FROM outbox.lane WHERE slot < 0', qr/invalid slot in outbox\.lane: -2000000000/ ],
	[ 'ALTER TABLE outbox.lane ALTER slot TYPE text', 'ALTER TABLE outbox.lane ALTER slot TYPE integer USING slot::integer', qr/table "outbox\.lane" has been altered/ ])
{
	my ($alter, $back, $error) = @$case;

	$clustered->sql("ALTER TABLE outbox.lane DROP CONSTRAINT IF EXISTS lane_slot_check; $alter");
	$clustered->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher'});
	eventually { slurp($clustered->logfile) =~ $error } 'a slot that cannot be is an error of the dispatcher';
	$clustered->sql("$back; SELECT outbox_enqueue('d', 'x')");
	ok($clustered->wait_until_sent, '... and it goes on when the table is as before');
}
unlike(slurp($clustered->logfile), qr/terminated by signal/, 'no process has crashed');

done_testing();
