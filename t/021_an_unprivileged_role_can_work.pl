# A role that was granted "application" can begin, enqueue, commit and wait; it can
# neither read a table nor forge a record. Other roles can do less.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<'END');
CREATE ROLE application LOGIN;
CREATE ROLE monitor LOGIN;
CREATE ROLE admin LOGIN;
CREATE ROLE stranger LOGIN;
SELECT outbox_grant('application');
SELECT outbox_grant('monitor', 'monitor');
SELECT outbox_grant('admin', 'admin');
END

# Returns "yes" if a role may run this, or else the SQLSTATE.
sub may
{
	my ($role, $sql, $database) = @_;
	my $error = $node->sql_error($sql, $database, extra_params => [ '-U', $role ]);
	return $error =~ /^no error/ ? 'yes' : substr($error, 0, 5);
}

# Returns those of these statements that a role is not forbidden; one session tries all.
sub not_forbidden
{
	my ($role, @statements) = @_;
	my ($status, $output) = $node->psql('postgres', join('', map { "$statements[$_];\n\\echo $_ :SQLSTATE\n" } 0 .. $#statements),
		on_error_stop => 0, extra_params => [ '-U', $role ]);
	return map { $output =~ /^$_ 42501$/m ? () : $statements[$_] } 0 .. $#statements;
}

my $work = q{BEGIN; SELECT outbox_begin('m1'); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT};

is(may('application', $work), 'yes', 'an application works');
eventually { $redis->count('d') == 1 } '... and its message is sent';
is(may('application', q{SELECT outbox_wait('m1')}), 'yes', '... and it can wait for that');
is(may('application', q{BEGIN; SELECT outbox_begin('m2', concurrency => 'pessimistic'); SELECT outbox_commit(); COMMIT}),
	'yes', '... in pessimistic mode too');
is(may('application', q{SELECT outbox_begin('6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid); SELECT outbox_commit()}),
	'25000', '... under the usual rules');
is(may($_, $work), '42501', "a $_ does not") foreach 'stranger', 'monitor';

# Tables.
my @tables = split /\n/, $node->sql(q{SELECT oid::regclass FROM pg_class
	WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r' ORDER BY 1});
cmp_ok(@tables, '>=', 20, 'there are tables');
foreach my $role ('application', 'monitor', 'admin', 'stranger')
{
	my @open = not_forbidden($role, map { ("SELECT FROM $_", "DELETE FROM $_", "TRUNCATE $_", "INSERT INTO $_ DEFAULT VALUES") } @tables);
	push @open, grep { may($role, $_) ne '42501' } map { "COPY $_ FROM STDIN" } @tables;    # psql ends after each
	is(join('; ', @open), '', "no table is open to: $role");
	is(may($role, q{SELECT nextval('outbox.log_id_seq')}), '42501', '... nor the sequence');
}

# Views and functions.
foreach my $view ('status', 'destinations', 'pending', 'records', 'endpoints')
{
	is(may('monitor', "SELECT * FROM outbox.$view"), 'yes', "a monitor reads outbox.$view");
	is(may('admin', "SELECT * FROM outbox.$view"), 'yes', '... and an admin');
	is(may('application', "SELECT * FROM outbox.$view"), '42501', '... but no application');
}
is(may('admin', q{SELECT outbox_create_endpoint('e'); SELECT outbox_alter_endpoint('e', 'pessimistic'); SELECT outbox_drop_endpoint('e')}),
	'yes', 'an admin manages endpoints');
is(may('admin', 'SELECT outbox_cleanup()'), 'yes', '... and asks for expiry');
foreach my $role ('application', 'monitor')
{
	is(may($role, q{SELECT outbox_create_endpoint('e')}), '42501', "no endpoint is made by: $role");
	is(may($role, 'SELECT outbox_cleanup()'), '42501', '... nor expiry asked for');
	is(may($role, q{SELECT outbox_grant('stranger')}), '42501', '... nor anything granted');
}

# The rows that a view leaves out are not shown to a function in a query on it.
$node->sql(q{SELECT outbox_enqueue('later', 'a secret', deliver_at => now() + interval '1 h')});
eventually { $node->sql('SELECT scheduled FROM outbox.status') == 1 } 'a message waits for its time';
is(may('admin', <<'END'), 'yes', '... and an admin does not see its body in outbox.dead_letters');
SET enable_indexscan = off;
SET enable_bitmapscan = off;
CREATE FUNCTION pg_temp.show(body bytea) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS $$ BEGIN RAISE '%', body; END $$;
SELECT FROM outbox.dead_letters WHERE pg_temp.show(body);
END

# Internal functions, which write records and messages.
is(may('application', 'SELECT outbox.redirect_restored()'), '42501', 'the internal functions are closed');
is(may('application', 'CREATE FUNCTION pg_temp.f() RETURNS text LANGUAGE sql AS $$ SELECT msgid FROM outbox.record_0 $$; SELECT pg_temp.f()'),
	'42501', '... whatever they are called from');

$node->sql(q{SELECT outbox_revoke('application'), outbox_revoke('monitor', 'monitor')});
is(may('application', $work), '42501', 'outbox_revoke takes it from an application');
is(may('monitor', 'SELECT * FROM outbox.status'), '42501', '... and from a monitor');

# The same with the functions in other schemas.
foreach my $schema ('tools', 'outbox')
{
	my $database = "in_$schema";

	$node->sql("CREATE DATABASE $database");
	$node->sql("CREATE SCHEMA $schema; CREATE EXTENSION outbox SCHEMA $schema; SELECT $schema.outbox_grant('application')", $database);
	is(may('application', $work =~ s/outbox_/$schema.outbox_/gr, $database), 'yes', "schema $schema: an application works");
	is(may('stranger', $work =~ s/outbox_/$schema.outbox_/gr, $database), '42501', '... a stranger does not');
	is(may('application', 'SELECT FROM outbox.log_0', $database), '42501', '... and the tables are closed');
	is(may('application', 'SELECT * FROM outbox.status', $database), '42501', '... and the views');
}
eventually { $redis->count('d') == 3 } 'their messages are sent';

done_testing();
