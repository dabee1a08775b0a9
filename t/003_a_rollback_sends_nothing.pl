# A transaction that does not commit leaves no message and no record, however it ends.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<'END');
CREATE TABLE business (n integer);
CREATE TABLE strict (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO strict VALUES (1);
END

# Runs SQL in a session of its own, enqueues another message behind it, and returns
# what arrived of both.
my $receipt = 0;

sub arrives_of
{
	my ($sql) = @_;
	my $count = $redis->count('d');

	$node->psql('postgres', $sql, on_error_stop => 0);
	$receipt++;
	$node->sql("SELECT outbox_enqueue('d', 'receipt $receipt')");
	wait_until { my @bodies = $redis->bodies('d'); @bodies and $bodies[-1] eq "receipt $receipt" };
	my @bodies = $redis->bodies('d');
	return join ' ', grep { !/receipt/ } @bodies[ $count .. $#bodies ];
}

is(arrives_of(<<'END'), '', 'ROLLBACK');
BEGIN;
SELECT outbox_begin('m1');
INSERT INTO business VALUES (1);
SELECT outbox_enqueue('d', 'a');
SELECT outbox_commit();
ROLLBACK;
END
is($node->sql('SELECT count(*) FROM outbox.records'), 0, '... leaves no record');
is($node->sql(q{BEGIN; SELECT outbox_begin('m1'); ROLLBACK}), 't', '... so that its message is new again');

is(arrives_of(q{BEGIN; SELECT outbox_enqueue('d', 'a'); SELECT 1/0; COMMIT}), '', 'an error');
is(arrives_of(q{SELECT outbox_enqueue('d', 'a'), 1/(n-2) FROM generate_series(1, 3) n}), '', 'an error in the statement');

is(arrives_of(<<'END'), 'a d', 'ROLLBACK TO');
BEGIN;
SELECT outbox_enqueue('d', 'a');
SAVEPOINT s;
SELECT outbox_enqueue('d', 'b');
SAVEPOINT t;
SELECT outbox_enqueue('d', 'c');
RELEASE t;
ROLLBACK TO s;
SELECT outbox_enqueue('d', 'd');
COMMIT;
END

is(arrives_of(<<'END'), 'b', 'ROLLBACK TO before a begin');
BEGIN;
SAVEPOINT s;
SELECT outbox_begin('m2');
SELECT outbox_enqueue('d', 'a');
SELECT outbox_commit();
ROLLBACK TO s;
SELECT outbox_begin('m3');
SELECT outbox_enqueue('d', 'b');
SELECT outbox_commit();
COMMIT;
END
is($node->sql('SELECT msgid FROM outbox.records'), 'm3', '... takes the record too');

is(arrives_of(<<'END'), 'a c', 'an exception that PL/pgSQL catches');
DO $$
BEGIN
	PERFORM outbox_enqueue('d', 'a');
	BEGIN
		PERFORM outbox_enqueue('d', 'b');
		RAISE EXCEPTION 'no';
	EXCEPTION WHEN OTHERS THEN
		PERFORM outbox_enqueue('d', 'c');
	END;
END;
$$
END

is(arrives_of(<<'END'), '', 'a deferred constraint that fails at COMMIT');
BEGIN;
SELECT outbox_begin('m4');
INSERT INTO strict VALUES (1);
SELECT outbox_enqueue('d', 'a');
SELECT outbox_commit();
COMMIT;
END
is($node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid = 'm4'}), 0, '... leaves no record');

is(arrives_of(q{BEGIN; SELECT outbox_begin('m5'); SELECT outbox_enqueue('d', 'a'); COMMIT}), '', 'a forgotten outbox_commit');

is(arrives_of(<<'END'), '', 'a session that is terminated');
BEGIN;
SELECT outbox_enqueue('d', 'a');
SELECT pg_terminate_backend(pg_backend_pid());
END

my $session = $node->session;
$session->query(q{BEGIN; SELECT outbox_begin('m6'); SELECT outbox_enqueue('d', 'a'); SELECT outbox_commit()});
$session->quit;
is(arrives_of('SELECT 1'), '', 'a client that leaves without COMMIT');

is(arrives_of(<<'END'), 'a', 'a session goes on after all this');
BEGIN;
SELECT outbox_begin('m7');
SELECT outbox_enqueue('d', 'lost');
SELECT 1/0;
ROLLBACK;
BEGIN;
SELECT outbox_begin('m7');
SELECT outbox_enqueue('d', 'a');
SELECT outbox_commit();
COMMIT;
END

done_testing();
