# While somebody holds a lock on a record, or on the whole table, what is not locked is
# marked and deleted, and everything is sent; the rest is done when the lock is released.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\noutbox.replay_window = '1s'");

$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON inbox (dispatched_at);
CREATE TABLE other (LIKE inbox INCLUDING ALL);
SELECT outbox_create_endpoint('own', retention => '1 hour', record_table => 'inbox');
SELECT outbox_create_endpoint('other', retention => '1 hour', record_table => 'other');
END

sub unmarked { return $node->sql(q{SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM inbox WHERE NOT dispatched}); }

# Nothing is sent until the row is locked.
my $writer = $node->session;
$node->sql('SELECT outbox_pause()');
$node->handle("m$_", 'own') foreach 1 .. 3;
$writer->query_safe(q{BEGIN; UPDATE inbox SET note = 'mine' WHERE message_id = 'm2'});
$node->sql('SELECT outbox_resume()');
eventually { $redis->count('d') == 3 } 'a record is locked, messages are sent';
eventually { unmarked() eq 'm2' } '... the others are marked';
$node->handle("n$_", 'own') foreach 1 .. 3;
$node->handle('o1', 'other');
is($node->sql(q{SELECT outbox_wait('n3', 'own', '3 min'), outbox_wait('o1', 'other', '3 min')}), 't|t', '... and so are those that come later, of all endpoints');
is($node->sql(q{SELECT outbox_wait('m2', 'own', '0')}), 'f', '... but that one');
is($node->status('pending'), 0, 'it is not pending');

# Nothing for which its receipt may still be needed is removed.
sub log_has_receipt
{
	return $node->sql(q{SELECT count(*) FROM (SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL
		SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3) l WHERE msgid = 'm2'});
}
sub clean_up_for_a_while
{
	foreach (1 .. 5)
	{
		$node->handle('p' . $node->sql('SELECT count(*) FROM inbox'), 'own');
		$node->sql('SELECT outbox_cleanup(), pg_sleep(0.6)');
	}
	return;
}
clean_up_for_a_while();
is(log_has_receipt(), 1, 'the log keeps what is not marked');
$writer->query_safe('COMMIT');
eventually { unmarked() eq '' } 'when the lock is gone it is marked';
is($node->sql(q{SELECT note FROM inbox WHERE message_id = 'm2'}), 'mine', '... and what the writer wrote is there');
eventually { clean_up_for_a_while(); log_has_receipt() == 0 } '... and the log drops it';

# The whole table.
$writer->query_safe(q{BEGIN; LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE});
my $sent = $redis->count('d');
$node->sql(qq{SELECT outbox_enqueue('d', 'plain $_')}) foreach 1 .. 3;
$node->handle('o2', 'other');
eventually { $redis->count('d') == $sent + 4 } 'the table is locked, all else goes on';
is($node->sql(q{SELECT outbox_wait('o2', 'other', '3 min')}), 't', '... also for another table');
$writer->query_safe('COMMIT');

$node->sql('SELECT outbox_pause()');
$node->handle('q1', 'own');
$writer->query_safe(q{BEGIN; LOCK TABLE inbox IN SHARE MODE});
$node->sql('SELECT outbox_resume()');
eventually { $redis->count('d') == $sent + 5 } 'the table is locked against writers, messages are sent';
is($node->sql(q{SELECT dispatched FROM inbox WHERE message_id = 'q1'}), 'f', '... but not marked');
$writer->query_safe('COMMIT');
is($node->sql(q{SELECT outbox_wait('q1', 'own', '3 min')}), 't', '... until the lock is gone');

# Expiry.
$node->sql(q{INSERT INTO inbox SELECT 'old ' || i, true, now() - interval '2 hours' + i * interval '1 s' FROM generate_series(1, 2500) i});
$writer->query_safe(q{BEGIN; SELECT count(*) FROM (SELECT 1 FROM inbox WHERE message_id IN ('old 1', 'old 999', 'old 1500', 'old 2500') FOR KEY SHARE) r});
is($node->sql('SELECT outbox_cleanup()'), 2496, 'records that are locked are left');
is($node->sql(q{SELECT string_agg(message_id, ', ' ORDER BY dispatched_at) FROM inbox WHERE message_id LIKE 'old%'}), 'old 1, old 999, old 1500, old 2500', '... and no others');
$writer->query_safe('ROLLBACK');
$writer->query_safe(q{BEGIN; LOCK TABLE inbox IN SHARE MODE});
is($node->sql('SELECT outbox_cleanup()'), 0, 'a table that is locked is left');
$writer->query_safe('ROLLBACK');
is($node->sql('SELECT outbox_cleanup()'), 4, '... to the next round');
$writer->quit;

# Nobody waits for the bookkeeper, which holds locks for moments only.
$node->sql(q{INSERT INTO inbox SELECT 'old ' || i, true, now() - interval '2 hours' FROM generate_series(1, 20000) i});
my $load = $node->start_load(clients => 2, args => ['--define=n=0'], scripts => [ <<'END' ]);
\set n :n + 1
BEGIN;
SET LOCAL lock_timeout = '150s';
SELECT outbox_begin('load ' || :n || ' ' || :client_id, 'own');
SELECT outbox_enqueue('load', :n::text);
SELECT outbox_commit();
COMMIT;
END
is($node->sql('SELECT outbox_cleanup()'), 20000, 'expiry under load deletes all that has expired');
ok($load->is_running, '... and no writer fails');
$load->stop;
ok($node->wait_until_sent, 'all is sent');
eventually { unmarked() eq '' } '... and marked';
is($redis->count('load'), $node->sql(q{SELECT count(*) FROM inbox WHERE message_id LIKE 'load%'}), '... and as many messages as records');

# The owner inserts ids at the same time: that makes a duplicate and never an error.
$node->sql('CREATE SEQUENCE turn');
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $draw = "SELECT nextval('turn') / 8 AS n \\gset\n";
	my $owner = $node->start_load(clients => 4, seconds => 3,
		scripts => ["${draw}INSERT INTO inbox VALUES ('$level ' || :n, true, now()) ON CONFLICT DO NOTHING;\n"]);
	my $ours = $node->start_load(clients => 4, seconds => 3, scripts => [ <<END ]);
$draw
BEGIN ISOLATION LEVEL $level;
SELECT outbox_begin('$level ' || :n, 'own', 'pessimistic');
SELECT outbox_commit();
COMMIT;
END
	my @ended = ($owner->finish, $ours->finish);
	ok($ended[0] && $ended[1], "the owner may insert ids, too: $level") or diag $ours->{error};
}

done_testing();
