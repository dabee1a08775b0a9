# While callers keep the processors busy, the pause between two windows grows up to
# outbox.max_dispatch_delay, so that windows are fewer and larger. A message that is
# alone leaves at once all the same.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

plan skip_all => 'this kernel does not say how long a process waited' unless -r '/proc/self/schedstat';

# All processes of this test share one processor, so a few sessions keep it busy.
my ($processor) = PostgreSQL::Test::Utils::slurp_file('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\d+)/m;
system("taskset -cp $processor $$ >/dev/null") == 0 or plan skip_all => 'processes cannot be bound to a processor';

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "fsync = off\nsynchronous_commit = off\nautovacuum = off");

# How many milliseconds are between two windows, in the middle, while sessions are busy.
sub pause_under_load
{
	my $windows = join ' UNION ALL ', map { "SELECT number, opened_at FROM outbox.window_$_" } 0 .. 3;
	my $before = $node->sql("SELECT max(number) FROM ($windows) w");

	$node->load(clients => 8, transactions => 600, scripts => [q{SELECT outbox_enqueue('d', 'x')}]);
	return $node->sql(<<"END");
SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY pause), 0)
FROM (SELECT extract(epoch FROM max(opened_at) - lag(max(opened_at)) OVER (ORDER BY number)) * 1000 AS pause
	FROM ($windows) w WHERE number > $before GROUP BY number) p
END
}

# Without that there is a millisecond, and what a window takes. A message is alone if nothing
# is enqueued beside it: on any machine one of many comes sooner than after such a pause.
$node->set('outbox.max_dispatch_delay' => '100ms');
eventually { pause_under_load() > 40 } 'while sessions are busy there is a pause between windows';

my $session = $node->session;
$node->wait_until_sent;
eventually
{
	my $sent = $redis->count('alone');
	$session->query_safe(q{SELECT outbox_enqueue('alone', 'x')});
	wait_until { $redis->count('alone') == $sent + 1 };
	$session->query_safe(q{SELECT outbox_enqueue('alone', 'x')});
	return 50 > 1000 * seconds { wait_until { $redis->count('alone') == $sent + 2 } };
}
'a message that is alone is sent at once, also right behind another one';
$session->quit;

done_testing();
