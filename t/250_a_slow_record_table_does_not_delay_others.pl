# The bookkeeper works on all custom record tables. Neither a statement that takes long nor
# tables that end its process, however many, keep it from the other tables. If it runs code
# that no signal ends, outbox.status says so.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\nautovacuum = off");

# Creates tables, and endpoints of the same names.
sub create_tables
{
	my ($database, @tables) = @_;
	$node->sql(<<"END", $database) foreach @tables;
CREATE TABLE $_ (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON $_ (dispatched_at);
SELECT outbox_create_endpoint('$_', record_table => '$_', retention => '1 hour');
END
	return;
}

# Creates triggers on them that do this.
sub create_triggers
{
	my ($database, $does, @tables) = @_;
	$node->sql("CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN $does; RETURN NEW; END \$\$;"
		. join('', map { "CREATE TRIGGER act BEFORE UPDATE ON $_ FOR EACH STATEMENT EXECUTE FUNCTION act();" } @tables), $database);
	return;
}

# Processes so many messages in one transaction.
sub handle
{
	my ($database, $msgid, $n, @endpoints) = @_;
	$node->sql('BEGIN; ' . join('', map { <<"END" } @endpoints) . 'COMMIT', $database);
DO \$\$ BEGIN FOR n IN 1 .. $n LOOP PERFORM outbox_begin('$msgid' || n, '$_'), outbox_commit(); END LOOP; END \$\$;
END
	return;
}

# Stops the process where the trigger of a table hangs: no signal but SIGKILL ends it now.
create_tables('postgres', 'hanging');
create_triggers('postgres', 'PERFORM pg_sleep(3600)', 'hanging');
handle('postgres', 'm', 1, 'hanging');
my $stopped;
eventually { $stopped = $node->bookkeeper('postgres', "wait_event = 'PgSleep'") } 'a trigger hangs';
kill 'STOP', $stopped;

# Meanwhile, in another database. A page of receipts is 1000 of them.
$node->sql('CREATE DATABASE slow TEMPLATE template0');
$node->sql('CREATE EXTENSION outbox', 'slow');
create_tables('slow', 'slow', 'fast');
create_triggers('slow', 'PERFORM pg_sleep(1.5)', 'slow');
my $fast = q{SELECT min(dispatched_at), max(dispatched_at) FROM fast WHERE message_id LIKE};
my $round = 0;
my $marks_fast_first = sub {
	my $msgid = 'm' . ++$round . ' ';
	handle('slow', $msgid, 4000, 'slow', 'fast');
	wait_until { $node->sql('SELECT bool_and(dispatched) FROM fast', 'slow') eq 't' };
	return $node->sql("SELECT count(*) <= 1000 FROM slow, ($fast '$msgid%') f (first, last) WHERE dispatched_at BETWEEN first AND last", 'slow') eq 't';
};

# On a machine that is busy with other things the fast table may be slow, too: several tries.
eventually { $marks_fast_first->() } 'while records of a table are marked, one where each statement takes long does not get as many turns';
eventually { $node->sql('SELECT bool_and(dispatched) FROM slow', 'slow') eq 't' } '... but it gets its turns';

# The same when expired records are deleted, 1000 in one statement.
$node->sql(<<'END', 'slow');
TRUNCATE slow, fast;
ALTER TABLE slow DISABLE TRIGGER act;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.deleted VALUES (TG_TABLE_NAME); PERFORM pg_sleep(TG_ARGV[0]::real); RETURN NULL; END $$;
CREATE TABLE deleted (name text, at serial);
CREATE TRIGGER note BEFORE DELETE ON slow FOR EACH STATEMENT EXECUTE FUNCTION note('0.3');
CREATE TRIGGER note BEFORE DELETE ON fast FOR EACH STATEMENT EXECUTE FUNCTION note('0');
END
my $deletes_fast_first = sub {
	$node->sql("INSERT INTO $_ SELECT i, true, now() - interval '2 hours' FROM generate_series(1, 4000) i", 'slow') foreach 'slow', 'fast';
	$node->sql('TRUNCATE deleted', 'slow');
	$node->sql('SELECT outbox_cleanup()', 'slow') == 8000 or die 'not all expired records are deleted';
	return $node->sql(q{SELECT count(*) <= 2 FROM deleted WHERE name = 'slow' AND at < (SELECT max(at) FROM deleted WHERE name = 'fast')}, 'slow') eq 't';
};
eventually { $deletes_fast_first->() } 'all expired records are deleted, and the table where that takes long does not make the others wait';

# More tables than used to fit into the list of those that are left alone.
my @ending = map { "ending_$_" } 1 .. 10;
$node->sql('CREATE DATABASE ending TEMPLATE template0');
$node->sql('CREATE EXTENSION outbox', 'ending');
create_tables('ending', @ending);
create_triggers('ending', q{RAISE LOG 'ending at %', TG_TABLE_NAME; PERFORM set_config('exit_on_error', 'on', false); RAISE EXCEPTION 'gone'}, @ending);
my $log = $node->log_position;

# The seconds of the day at which each of them did.
my $ended = sub {
	my $text = $node->log_since($log);
	my %at;
	push @{ $at{$4} }, $1 * 3600 + $2 * 60 + $3 while $text =~ /^\S+ (\d+):(\d+):(\d+)\S* .*ending at (ending_\d+)/mg;
	return \%at;
};
handle('ending', 'm', 1, @ending);
eventually { keys %{ $ended->() } == @ending } 'ten tables end the process';

# The process does not end.
eventually { $node->status('problem') =~ /in any table.*process $stopped works on record table public\.hanging and does not end/ } 'a process that does not end is named, and where it works';
is($node->bookkeeper('postgres'), $stopped, '... and there is no other one');
is($node->sql('SELECT outbox_cleanup()'), 0, '... outbox_cleanup() answers');
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, '... messages are sent');
my $dispatcher = $node->dispatcher;
$node->sql("SELECT pg_terminate_backend($dispatcher)");
eventually { $node->dispatcher != $dispatcher && $node->status('problem') =~ /process $stopped works on record table public\.hanging and does not end/ } '... as the next dispatcher says';
is($node->bookkeeper('postgres'), $stopped, '... who starts no other one either');
kill 'CONT', $stopped;
eventually { ($node->bookkeeper('postgres') || $stopped) ne $stopped } 'it ends: there is another one';
unlike($node->status('problem') // '', qr/does not end/, '... which status knows');
$node->sql('DROP TRIGGER act ON hanging');
eventually { $node->sql('SELECT dispatched FROM hanging') eq 't' } '... the trigger is dropped, the record is marked';
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# This test may take longer than tables are left alone.
my $at = $ended->();
my $soon = sub { my @at = @_; return grep { ($at[$_] - $at[ $_ - 1 ]) % 86_400 < 50 } 1 .. $#at; };
is_deeply([ grep { $soon->(@{ $at->{$_} }) } @ending ], [], 'none of the ten was tried again before a minute was over');

done_testing();
