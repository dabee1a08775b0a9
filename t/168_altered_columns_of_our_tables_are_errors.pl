# The owner of the tables gives columns other types, or drops NOT NULL. What reads them gets
# an error, and nothing else happens: no number is taken for a pointer. When they are
# altered back, all goes on.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
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

# Alters each column in a transaction of its own, does in it what a session can do, and
# rolls it back. Errors are what is expected.
$node->sql(<<'SQL');
CREATE PROCEDURE try_all() LANGUAGE plpgsql AS $$
DECLARE
	alteration text;
	altered integer := 0;
	act text;
	acts text[] := ARRAY[
		$q$SELECT * FROM outbox.status$q$, $q$SELECT * FROM outbox.problems$q$, $q$SELECT * FROM outbox.endpoints$q$, $q$SELECT * FROM outbox.destinations$q$,
		$q$SELECT * FROM outbox.pending$q$, $q$SELECT * FROM outbox.records$q$, $q$SELECT * FROM outbox.dead_letters$q$, $q$SELECT * FROM outbox.deferred$q$,
		$q$SELECT outbox_begin('n', 'e'), outbox_enqueue('d', 'y'), outbox_commit()$q$, $q$SELECT outbox_begin('m', 'e')$q$,
		$q$SELECT outbox_forget('m', 'e')$q$, $q$SELECT outbox_replay('-infinity')$q$, $q$SELECT outbox_create_endpoint('f')$q$];
BEGIN
	FOR alteration IN
		SELECT format('ALTER TABLE outbox.%I ALTER %I %s', c.relname, a.attname, how)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid,
			LATERAL unnest(CASE WHEN a.attnotnull THEN ARRAY['DROP NOT NULL'] ELSE ARRAY[]::text[] END ||
				ARRAY['TYPE bigint USING 1', $q$TYPE text USING 'BBBBBBBB'$q$]) how
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
			AND c.relname !~ '_([1-9]|1[0-9]|2[0-9])$'
	LOOP
		BEGIN
			EXECUTE alteration;
			altered := altered + 1;
			FOREACH act IN ARRAY acts LOOP
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
my $sent = 3;
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

done_testing();
