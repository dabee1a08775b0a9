# The demo says that nothing was lost and nothing doubled. So its comparison must notice
# when something was.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use Redis;
use Test::More;

my $reconcile = dirname(__FILE__) . '/../examples/demo/reconcile.py';
my $python = python();
plan skip_all => 'no python3 with psycopg and redis' unless $python;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
$node->command_ok([ 'pgbench', '--initialize', '--quiet', 'postgres' ], "pgbench's tables are the business data");

# Handles an incoming message as the demo's clients do.
sub handle
{
	my ($id, $account, $delta) = @_;
	$node->sql(<<"END");
BEGIN;
SELECT outbox_begin('$id');
UPDATE pgbench_accounts SET abalance = abalance + $delta WHERE aid = $account;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler) VALUES (1, 1, $account, $delta, now(), '$id');
SELECT outbox_enqueue('balance', jsonb_build_object('type', 'BalanceChanged', 'account', $account, 'delta', $delta));
SELECT outbox_commit();
COMMIT;
END
	return;
}

# What the comparison prints, and its exit code.
sub verdict
{
	my ($incoming) = @_;
	my $out = '';

	IPC::Run::run([ $python, $reconcile, $node->connstr('postgres'), $redis->url, 'balance', $incoming // 5 ],
		'<', '/dev/null', '>', \$out, '2>&1');
	my ($lost, $doubled) = $out =~ /^lost (\d+)   doubled (\d+)$/m or diag $out;
	return sprintf '%s lost, %s doubled, exit %d', $lost // '?', $doubled // '?', $? >> 8;
}

handle("message-$_", $_, 100 * $_ - 250) foreach 1 .. 5;
$node->wait_until_sent;
is(verdict(), '0 lost, 0 doubled, exit 0', 'books that agree');
is(verdict(6), '1 lost, 0 doubled, exit 1', 'a message that was never processed');

my ($entry, $fields) = @{ $redis->command('XRANGE', 'balance', '-', '+', 'COUNT', 1)->[0] };
$redis->command('XADD', 'balance', '*', @$fields);
is(verdict(), '0 lost, 1 doubled, exit 1', 'an event that came twice');
$redis->command('XDEL', 'balance', $redis->command('XREVRANGE', 'balance', '+', '-', 'COUNT', 1)->[0][0]);
is(verdict(), '0 lost, 0 doubled, exit 0', '... and no more');
$redis->command('XDEL', 'balance', $entry);
is(verdict(), '1 lost, 0 doubled, exit 1', 'an event that is missing');
$redis->command('XADD', 'balance', '*', @$fields);
$node->sql('UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 3');
is(verdict(), '0 lost, 0 doubled, exit 1', 'a balance that nobody announced');

done_testing();
