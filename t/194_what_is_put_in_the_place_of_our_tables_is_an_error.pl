# The owner of the tables puts something else in their place: a view, a table that inherits from one
# of them, a rule that returns other rows. What reads them gets an error, and no process crashes.
# When that is gone again, messages are sent as before.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $sent = 0;

$node->sql(<<'END');
SELECT outbox_create_endpoint('e');
CREATE SCHEMA aside;
END
$node->sends($redis, ++$sent, 'a message is sent');
my $started = $node->sql('SELECT pg_postmaster_start_time()');

# A view in the place of each of them, in a transaction that is rolled back. Until 15 an empty
# table becomes one, with all that is known of its columns.
my $becomes_view = $node->sql('SHOW server_version_num') < 160000;
foreach my $table (qw(instance ring endpoint destination deferred forgotten loss log_0 window_0 record_0 history_0 log_id_seq))
{
	my $columns = $node->sql(<<"END");
SELECT string_agg(format('%I %s', attname, format_type(atttypid, NULL)) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END, ', ' ORDER BY attnum)
FROM pg_attribute WHERE attrelid = 'outbox.$table'::regclass AND attnum > 0
END
	my $nulls = $node->sql(<<"END");
SELECT 'SELECT ' || string_agg(format('NULL::%s AS %I', format_type(atttypid, NULL), attname), ', ' ORDER BY attnum)
FROM pg_attribute WHERE attrelid = 'outbox.$table'::regclass AND attnum > 0
END
	my $view = $becomes_view ?
		qq{CREATE TABLE outbox.$table ($columns); CREATE RULE "_RETURN" AS ON SELECT TO outbox.$table DO INSTEAD $nulls;} :
		"CREATE VIEW outbox.$table AS $nulls;";

	my $kind = $table eq 'log_id_seq' ? 'SEQUENCE' : 'TABLE';
	my $acts = join '', map { "SAVEPOINT s; $_; ROLLBACK TO s;" }
		q{SELECT * FROM outbox.status}, q{SELECT * FROM outbox.problems}, q{SELECT * FROM outbox.records}, q{SELECT * FROM outbox.endpoints},
		q{SELECT outbox_begin('n', 'e'), outbox_enqueue('d', 'y'), outbox_commit()}, q{SELECT outbox_forget('m', 'e')},
		q{SELECT outbox_replay('-infinity')}, q{SELECT outbox_alter_endpoint('e', retention => '1 hour')};
	$node->psql('postgres', "BEGIN; ALTER $kind outbox.$table SET SCHEMA aside; $view $acts ROLLBACK", on_error_stop => 0);
	is($node->sql('SELECT pg_postmaster_start_time()'), $started, "$table: a view in its place does not end the server");
}

# The dispatcher says what is wrong. Rows of a table that inherits from ours may have NULL
# where ours cannot; so may those that a rule returns.
sub refuses
{
	my ($what, $put, $back) = @_;
	my $log = $node->log_position;

	# One that has failed rests, and after that would send the message without deferring it.
	my $dispatcher = $node->dispatcher;
	$node->sql($put);
	$node->sql(q{SELECT outbox_enqueue('d', 'x', deliver_at => now() + '200 ms')});
	$node->sql("SELECT pg_terminate_backend($dispatcher)");
	eventually { $node->log_since($log) =~ /tables of the outbox have been altered|"outbox\.\w+" has been altered/ } "$what: the dispatcher says what is wrong";
	$node->sql($back);
	$sent++;
	eventually { $redis->count('d') == $sent } '... and goes on without it';
}

# Since 18 a table that inherits NOT NULL cannot do without it.
if ($node->sql('SHOW server_version_num') < 180000)
{
	refuses('a row of a table that inherits from outbox.destination',
		'CREATE TABLE child () INHERITS (outbox.destination); ALTER TABLE child ALTER dest DROP NOT NULL; INSERT INTO child (paused) VALUES (false)',
		'DROP TABLE child');
	refuses('a row of a table that inherits from outbox.deferred',
		q{CREATE TABLE child () INHERITS (outbox.deferred); ALTER TABLE child ALTER message_id DROP NOT NULL;
		INSERT INTO child (id, dest, enqueued_at, state, attempts, next_attempt) VALUES (1, 'd', now(), 'scheduled', 0, now())},
		'DROP TABLE child');
}
my $row = $node->sql(q{SELECT string_agg('NULL::' || format_type(atttypid, NULL), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'outbox.deferred'::regclass AND attnum > 0});
refuses('a rule that returns NULL',
	"CREATE TABLE other AS SELECT 1 AS n; CREATE RULE other AS ON UPDATE TO outbox.deferred DO INSTEAD UPDATE other SET n = 2 RETURNING $row",
	'DROP RULE other ON outbox.deferred; DROP TABLE other');
is($node->sql('SELECT pg_postmaster_start_time()'), $started, 'the server has run all the time');
unlike($node->log_since(0), qr/terminated by signal/, '... and no process has crashed');

done_testing();
