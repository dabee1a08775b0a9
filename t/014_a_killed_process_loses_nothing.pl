# After kill -9 of the dispatcher, of a session, of the postmaster, or of all at once,
# what has committed is in Redis, once, and nothing else is.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'restart_after_crash = on');
$node->sql('CREATE TABLE ledger (n bigint)');

# Half of the transactions do not wait for their WAL to be flushed: what they lose in a
# crash must not have been sent before.
my @scripts = map { <<END } 'on', 'off';
\\set n random(1, 9000000000000000)
BEGIN;
SET LOCAL synchronous_commit = $_;
INSERT INTO ledger VALUES (:n);
SELECT outbox_begin('m' || :n);
SELECT outbox_enqueue('ledger', :n::text);
SELECT outbox_enqueue('copies', :n::text);
SELECT outbox_commit();
COMMIT;
END

sub is_up
{
	return $node->answers;
}

# Kills something under load and waits until the server is back.
sub survives
{
	my ($name, $kill) = @_;
	my $count = $redis->count('copies');
	my $load = $node->start_load(clients => 6, scripts => \@scripts);

	wait_until { $redis->count('copies') > $count + 200 };
	$kill->();
	$load->stop;
	eventually { is_up() } "$name: the server is there";

	$node->sql("SELECT outbox_enqueue('receipt', '$name')");
	eventually { grep { $_ eq $name } $redis->bodies('receipt') } '... and dispatch goes on';
	$node->wait_until_sent;
	my @ledger = split /\n/, $node->sql('SELECT n FROM ledger');
	is_exactly_once([ $redis->bodies('ledger') ], \@ledger, '... the books agree');
	is_exactly_once([ $redis->bodies('copies') ], \@ledger, '... in both streams');
	return;
}

sub backend
{
	return $node->sql(q{SELECT pid FROM pg_stat_activity
		WHERE application_name LIKE 'load%' AND state = 'idle in transaction' LIMIT 1})
	  || $node->sql(q{SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'load%' LIMIT 1});
}

survives('dispatcher killed', sub { $node->kill_dispatcher });
survives('session killed', sub { $node->kill_process(backend()) });
survives('dispatcher terminated', sub { kill 'TERM', $node->dispatcher });
survives('launcher killed', sub {
		$node->kill_process($node->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'outbox launcher%'}));
});
survives('immediate stop', sub { $node->stop('immediate'); $node->start });
survives('postmaster killed', sub {
		$node->kill9;
		$node->start_after_kill;
});
survives('Redis and dispatcher killed', sub {
		$redis->kill9;
		$node->kill_dispatcher;
		$redis->start;
});
survives('fast stop', sub { $node->stop('fast'); $node->start });

is($node->sql('SELECT count(*) - count(DISTINCT msgid) FROM outbox.records'), 0, 'no message has two records');

done_testing();
