# When the record table of an endpoint is altered or dropped, or its triggers fail, callers
# get a clear error, outbox.status says what is wrong, everything else goes on, and nothing
# is lost when the table is repaired.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.cleanup_interval = -1');

$node->sql(<<'END');
CREATE ROLE mallory;
CREATE SCHEMA hers AUTHORIZATION mallory;
CREATE TABLE hers.inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON hers.inbox (dispatched_at);
ALTER TABLE hers.inbox OWNER TO mallory;
CREATE TABLE other (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON other (dispatched_at);
SELECT outbox_create_endpoint('own', record_table => 'hers.inbox', retention => '1 hour');
SELECT outbox_create_endpoint('other', record_table => 'other', retention => '1 hour');
END

sub unmarked { return $node->sql(q{SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM hers.inbox WHERE NOT dispatched}); }

# Changes the table when messages have been committed and not sent.
sub handle_and_break
{
	my ($msgid, $sql) = @_;
	$node->sql('SELECT outbox_pause()');
	$node->handle($msgid, 'own');
	$node->sql($sql);
	$node->sql('SELECT outbox_resume()');
	eventually { grep { $_ eq $msgid } $redis->bodies('d') } "$msgid is sent";
	return;
}

# Other endpoints are not held up.
sub others_go_on
{
	my ($msgid) = @_;
	$node->handle($msgid, 'other');
	return is($node->sql("SELECT outbox_wait('$msgid', 'other', '3 min')"), 't', '... another endpoint goes on');
}

# A column is renamed.
handle_and_break('a1', 'ALTER TABLE hers.inbox RENAME COLUMN dispatched TO done');
like($node->sql_error(q{SELECT outbox_begin('a1', 'own')}), qr/^42703: table "hers.inbox" cannot hold the records/, 'begin refuses a table without its column');
like($node->sql_error(q{SELECT outbox_begin('a2', 'own', 'pessimistic')}), qr/^42703/, '... in both modes');
eventually { $node->status('problem') =~ /cannot be marked.*endpoint "own".*no column "dispatched"/ } 'status says what is wrong';
others_go_on('o1');
$node->sql('ALTER TABLE hers.inbox RENAME COLUMN done TO dispatched');
eventually { unmarked() eq '' } 'when it is repaired, all is marked';
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';
is($node->sql(q{SELECT outbox_begin('a1', 'own')}), 'f', 'what was processed is known');

# An index is dropped.
handle_and_break('b1', 'ALTER TABLE hers.inbox DROP CONSTRAINT inbox_pkey');
like($node->sql_error(q{SELECT outbox_begin('b1', 'own')}), qr/^55000/, 'begin refuses a table without its unique index');
$node->sql('ALTER TABLE hers.inbox ADD PRIMARY KEY (message_id)');
eventually { unmarked() eq '' } 'when it is repaired, all is marked';

# A trigger fails.
$node->sql(<<'END');
CREATE FUNCTION hers.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today: %', repeat(U&'\00E9', 200); END $$;
ALTER FUNCTION hers.fail() OWNER TO mallory;
END
my $dispatcher = $node->dispatcher;
handle_and_break('c1', 'CREATE TRIGGER fail BEFORE UPDATE OR DELETE ON hers.inbox FOR EACH ROW EXECUTE FUNCTION hers.fail()');
eventually { $node->status('problem') =~ /endpoint "own".*not today/ } 'a trigger fails: status says so';
ok(utf8::decode(my $problem = $node->status('problem')), '... in whole characters');
others_go_on('o2');
$node->sql(q{INSERT INTO hers.inbox VALUES ('old', true, now() - interval '2 hours'); INSERT INTO other VALUES ('old', true, now() - interval '2 hours')});
is($node->sql('SELECT outbox_cleanup()'), 1, 'expiry goes on where it can');
is($node->sql('SELECT message_id FROM hers.inbox WHERE message_id = \'old\''), 'old', '... and only there');
$node->sql('SELECT outbox_cleanup()') foreach 1 .. 2;
my @told = $node->log_since(0) =~ /expired records cannot be deleted: (.*)/g;
is(scalar @told, 1, '... which the log says once');
$node->sql(q{CREATE OR REPLACE FUNCTION hers.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN coalesce(NEW, OLD); END $$});
eventually { unmarked() eq '' } 'when it is repaired, all is marked';
is($node->sql('SELECT outbox_cleanup()'), 1, '... and expires');
like($node->log_since(0), qr/expired records can be deleted again/, '... which the log says, too');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# A trigger tries to get the rights of the process that runs it.
$node->sql(<<'SQL');
CREATE OR REPLACE FUNCTION hers.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.note := current_user || ' ' || current_setting('is_superuser');
	BEGIN
		SET ROLE none;
	EXCEPTION WHEN others THEN
		NEW.note := NEW.note || ' ' || SQLSTATE;
	END;
	BEGIN
		RESET SESSION AUTHORIZATION;
	EXCEPTION WHEN others THEN
		NEW.note := NEW.note || ' ' || SQLSTATE;
	END;
	RETURN NEW;
END
$$;
SQL
$node->handle('e1', 'own');
is($node->sql(q{SELECT outbox_wait('e1', 'own', '3 min')}), 't', 'a trigger that tries to become somebody else');
like($node->sql(q{SELECT note FROM hers.inbox WHERE message_id = 'e1'}), qr/^mallory o.* 42501 42501$/, '... is run by its owner, and cannot');
handle_and_break('e2', q{DROP TRIGGER fail ON hers.inbox; CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON hers.inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hers.fail()});
eventually { $node->status('problem') =~ /endpoint "own".*deferrable/ } 'one that would run at the end of the transaction is refused';
$node->sql('DROP TRIGGER fail ON hers.inbox');
eventually { unmarked() eq '' } '... and without it all is marked';

# A trigger hangs: dispatch does not.
handle_and_break('f1', q{CREATE OR REPLACE FUNCTION hers.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$;
	CREATE TRIGGER fail BEFORE UPDATE ON hers.inbox FOR EACH ROW EXECUTE FUNCTION hers.fail()});
eventually { $node->status('problem') =~ /endpoint "own".*statement timeout/ } 'a trigger that hangs is ended';
others_go_on('o3');
$node->sql('DROP TRIGGER fail ON hers.inbox');
eventually { unmarked() eq '' } '... and without it all is marked';
is($node->dispatcher, $dispatcher, 'all that was the same dispatcher');

# A trigger suppresses the update, without an error.
handle_and_break('k1', q{CREATE OR REPLACE FUNCTION hers.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER fail BEFORE UPDATE ON hers.inbox FOR EACH ROW EXECUTE FUNCTION hers.fail()});
others_go_on('o5');
eventually { $node->status('problem') =~ /endpoint "own" stay locked, or a trigger/ } 'a trigger that ignores marks is noticed';
$node->sql('DROP TRIGGER fail ON hers.inbox');
eventually { unmarked() eq '' } '... and without it all is marked';
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# A row security policy hides the row.
handle_and_break('g1', 'ALTER TABLE hers.inbox ENABLE ROW LEVEL SECURITY; ALTER TABLE hers.inbox FORCE ROW LEVEL SECURITY');
like($node->sql_error(q{SELECT outbox_begin('g1', 'own')}), qr/^55000/, 'row-level security that would hide records is refused');
$node->sql('ALTER TABLE hers.inbox NO FORCE ROW LEVEL SECURITY');
eventually { unmarked() eq '' } 'that of others does not concern us';

# The table is dropped.
handle_and_break('h1', 'DROP TABLE hers.inbox');
like($node->sql_error(q{SELECT outbox_begin('h1', 'own')}), qr/^42P01: record table of endpoint "own" does not exist/, 'the table is dropped: begin says so');
eventually { $node->status('problem IS NULL') eq 't' } '... there is nothing left to mark';
others_go_on('o4');
$node->sql(q{SELECT outbox_alter_endpoint('own', reset => '{record_table}')});
$node->handle('h2', 'own');
is($node->sql(q{SELECT outbox_wait('h2', 'own', '3 min')}), 't', 'the endpoint can go on with our tables');
is(scalar($redis->bodies('d')), 15, 'all messages were sent once');

done_testing();
