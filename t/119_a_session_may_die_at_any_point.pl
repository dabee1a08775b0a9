# A session is ended, is killed, or goes down with the server, at each kill point in the
# source of what sessions do, with and without PREPARE TRANSACTION. When its message is
# delivered again, outbox_begin() knows whether it was processed.

use strict;
use warnings FATAL => 'all';

use KillPoints;
use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = create_with_kill_points('main', redis => $redis);
my $deliveries = 0;

$node->sql('CREATE TABLE ledger (body text)');
$node->sql(q{BEGIN; SELECT outbox_begin('old'), outbox_commit(); COMMIT});

# What a handler does with a message, but for the end of its transaction.
sub handler
{
	my ($msgid, $concurrency) = @_;
	return <<END;
BEGIN;
SELECT outbox_begin('$msgid', concurrency => '$concurrency') AS new \\gset
\\if :new
INSERT INTO ledger VALUES ('$msgid');
SELECT outbox_enqueue('orders', '$msgid');
SAVEPOINT s;
SELECT outbox_enqueue('orders', 'ghost of $msgid');
ROLLBACK TO s;
SELECT outbox_enqueue('events', '$msgid');
SELECT outbox_commit();
SELECT outbox_forget('old');
SELECT outbox_begin('old'), outbox_commit();
\\endif
END
}

# Handles one message; the process dies if its kill point is armed.
sub deliver
{
	my ($msgid, $concurrency, $prepared) = @_;
	my $end = $prepared ? "PREPARE TRANSACTION '$msgid';\nCOMMIT PREPARED '$msgid';" : 'COMMIT;';

	$node->psql('postgres', handler($msgid, $concurrency) . $end);
	return $msgid;
}

# Does what a transaction manager does after a crash.
sub end_prepared
{
	my ($how) = @_;
	# A session that was ended may still hold one.
	return wait_until { $node->sql("$how PREPARED '$_'") foreach split /\n/, $node->sql('SELECT gid FROM pg_prepared_xacts'); 1 };
}

# Delivers the message once more, which must succeed.
sub deliver_again
{
	my ($msgid, $concurrency, $name) = @_;
	my $processed = $node->sql("SELECT EXISTS (SELECT FROM ledger WHERE body = '$msgid')");
	my $answer = $node->sql(handler($msgid, $concurrency) . "COMMIT;\n\\echo new: :new");

	is($answer =~ /new: (.)/ && $1, $processed eq 't' ? 'f' : 't', "$name: the next delivery is "
		  . ($processed eq 't' ? 'a duplicate' : 'new'));
	return;
}

foreach my $manner ('end', 'kill', 'server')
{
	foreach my $point (kill_points('src'))
	{
		foreach my $concurrency ('optimistic', 'pessimistic')
		{
			my $turn = 0;
			my $name = "$manner, $concurrency: $point";
			my $msgid;

			# What does not happen in COMMIT happens in PREPARE TRANSACTION.
			arm($node, $point, $manner);
			ok(wait_until { $msgid = deliver('m' . ++$deliveries, $concurrency, $turn++); fired($node) }, $name);
			revive($node, $manner) or BAIL_OUT('the server is gone');
			end_prepared($concurrency eq 'optimistic' ? 'COMMIT' : 'ROLLBACK');
			deliver_again($msgid, $concurrency, $name);
		}
	}
}

$node->wait_until_sent;
my @all = map { "m$_" } 1 .. $deliveries;
is_exactly_once([ split /\n/, $node->sql('SELECT body FROM ledger') ], \@all, 'each message was processed once');
is_exactly_once([ split /\n/, $node->sql('SELECT msgid FROM outbox.records') ], [ @all, 'old' ], '... and claimed once');
is_exactly_once([ $redis->bodies('orders') ], \@all, '... what it sends is there, once');
is_exactly_once([ $redis->bodies('events') ], \@all, '... in both streams');

done_testing();
