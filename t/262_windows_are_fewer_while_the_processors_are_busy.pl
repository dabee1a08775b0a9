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

# How many windows it takes to send what busy sessions enqueue.
sub windows_under_load
{
	my ($delay) = @_;
	my $windows = 'SELECT max(number) FROM (' . join(' UNION ALL ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3) . ') w';

	$node->set('outbox.max_dispatch_delay' => $delay);
	$node->load(clients => 8, transactions => 50, scripts => [q{SELECT outbox_enqueue('d', 'x')}]);
	my $before = $node->sql($windows);
	$node->load(clients => 8, transactions => 600, scripts => [q{SELECT outbox_enqueue('d', 'x')}]);
	return $node->sql($windows) - $before;
}

# Other processes may take the processor, too, and make windows few by themselves.
eventually
{
	return 2 * windows_under_load('100ms') < windows_under_load('1ms');
}
'busy sessions need less than half of the windows';

# Ten that wait for one another: 100 ms each would be a second.
my $session = $node->session;
$node->wait_until_sent;
eventually
{
	my $sent = $redis->count('alone');
	my $took = seconds
	{
		foreach (1 .. 10)
		{
			$session->query_safe(q{SELECT outbox_enqueue('alone', 'x')});
			$sent++;
			wait_until { $redis->count('alone') == $sent };
		}
	};
	return $took < 0.7;
}
'a message that is alone is sent at once';
$session->quit;

done_testing();
