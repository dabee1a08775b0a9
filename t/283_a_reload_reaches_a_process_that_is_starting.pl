# PostgreSQL lets a background worker ignore SIGHUP until the code of the worker begins. A reload
# that comes meanwhile reaches the dispatcher all the same: it uses the Redis that is set now.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;
use Time::HiRes qw(time);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'autovacuum = off');
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
my $children = "/proc/$postmaster/task/$postmaster/children";

plan skip_all => 'this kernel does not list the children of a process' unless -r $children;

my $held;
$node->set('outbox.redis_url' => 'unix:///nonexistent/redis.sock');
ok(wait_until { $held = hold_next_dispatcher() }, 'a dispatcher is stopped before it hears of reloads');
$node->set('outbox.redis_url' => $redis->url);
kill 'CONT', $held;
$node->sends($redis, 1, '... and sends to the Redis that is set meanwhile');
is($node->dispatcher, $held, '... itself, and no successor');

$node->stop('fast');
done_testing();

# Ends the dispatcher, and stops its successor as soon as that is there. Returns the process id of
# that one, if it would not hear of a reload now; lets it go on if it would.
sub hold_next_dispatcher
{
	my $dispatcher = $node->dispatcher;
	my %known = map { $_ => 1 } split ' ', slurp_file($children);
	my $deadline = time + 10;
	my $new;

	kill 'TERM', $dispatcher;
	until ($new)
	{
		return if time > $deadline;
		($new) = grep { !$known{$_} } split ' ', slurp_file($children);
	}
	kill 'STOP', $new;
	my %mask = slurp_file("/proc/$new/status") =~ /^Sig(Blk|Ign):\s*\w*(\w)$/mg;
	return $new if hex($mask{Blk}) & 1 or hex($mask{Ign}) & 1;
	kill 'CONT', $new;
	return;
}
