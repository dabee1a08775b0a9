# A launcher or dispatcher that dies is started again, without any commit that would
# cause that; one that failed says why; and kill -9 of a dispatcher, at whatever moment, loses, doubles or reorders
# nothing.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;
use Time::HiRes qw(usleep);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
restart_after_crash = on
outbox.retry_max_delay = '200ms'
outbox.max_attempts = 1000000
outbox.batch_size = 20
END

# The process id of the launcher or dispatcher; '' if there is none, or if one that ends is still listed beside its
# successor.
sub process
{
	my ($type) = @_;
	return eval { $node->sql("SELECT min(pid) FROM pg_stat_activity WHERE backend_type LIKE 'outbox $type%' HAVING count(*) = 1") } // '';
}

sub successor
{
	my ($type, $pid) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return eventually { my $now = process($type); $now ne '' && $now != $pid } "the $type has a successor";
}

ok(my $dispatcher = $node->dispatcher, 'there is a dispatcher');
my $launcher = process('launcher');
$node->sql("SELECT pg_terminate_backend($launcher)");
successor('launcher', $launcher);
is(process('dispatcher'), $dispatcher, '... the dispatcher goes on');
$node->sql("SELECT pg_terminate_backend($dispatcher)");
successor('dispatcher', $dispatcher);

# A cancel does nothing to the launcher: it starts the next dispatcher.
$launcher = process('launcher');
$node->sql("SELECT pg_cancel_backend($launcher)");
$dispatcher = process('dispatcher');
$node->sql("SELECT pg_terminate_backend($dispatcher)");
successor('dispatcher', $dispatcher);
is(process('launcher'), $launcher, '... by the launcher that was cancelled before');

# In the other order, and both at the same time.
($launcher, $dispatcher) = (process('launcher'), process('dispatcher'));
$node->sql("SELECT pg_terminate_backend($dispatcher), pg_terminate_backend($launcher)");
successor('launcher', $launcher);
successor('dispatcher', $dispatcher);
$dispatcher = process('dispatcher');
$node->sql("SELECT pg_terminate_backend($dispatcher)");
successor('dispatcher', $dispatcher);
ok($node->poll_query_until('postgres', q{SELECT dispatcher_state = 'idle' FROM outbox.status}), '... that works');

# One that was told to end has not failed, however often: the next one is not started later each time, as it is after failures.
my %terminated;
eventually { my $pid = process('dispatcher'); $node->sql("SELECT pg_terminate_backend($pid)") if $pid and not $terminated{$pid}++; keys %terminated == 12 }
'a dispatcher that is terminated again and again has a successor each time';

# One that fails says why: here a page of the log is damaged.
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->sql(q{SELECT outbox_enqueue('damaged', 'x')});
my $page = $node->data_dir . '/' . $node->sql(q{SELECT pg_relation_filepath(('outbox.log_' || segment)::regclass) FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
$node->set('outbox.dispatch' => 'on');
$node->stop;
rename $page, "$page.sound" or die $!;
append_to_file($page, 'x' x 8192);
$node->start;
eventually { $node->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'no dispatcher'})
	  =~ /^No dispatcher is running, because the last one has failed: invalid page in block 0 of relation "?base\S+\. See the server log\. Another one is started automatically\.$/ }
'a dispatcher that meets a damaged page ends, and outbox.problems says why';
$node->stop;
rename "$page.sound", $page or die $!;
$node->start;
eventually { $redis->count('damaged') == 1 } 'when the page is repaired, the message is sent';
is($node->sql(q{SELECT count(*) FROM outbox.problems}), 0, '... and nothing is wrong');

# Transactions take turns, so the numbers tell the order.
my $script = <<'END';
BEGIN;
UPDATE turn SET n = n + 1 RETURNING n \gset
SELECT outbox_enqueue('fickle', :n::text);
SELECT outbox_enqueue('steady', :n::text);
COMMIT;
END
$node->sql('CREATE TABLE turn (n integer); INSERT INTO turn VALUES (0)');
srand(my $seed = $ENV{SEED} // time);
note "SEED=$seed";
my $refuses = 0;

sub toggle
{
	$refuses = !$refuses;
	return $refuses ? $redis->refuse('fickle') : $redis->accept('fickle');
}

foreach my $round (1 .. 10)
{
	my $load = $node->start_load(clients => 4, rate => 200, scripts => [$script]);
	my $before = $redis->count('steady');
	wait_until { $redis->count('steady') > $before + 20 };
	foreach (0 .. int rand 4)
	{
		usleep(rand 150_000);
		toggle();
	}
	usleep(rand 30_000);
	my $pid = process('dispatcher');
	$node->kill_process($pid) if $pid;
	$load->stop;
	wait_until { $node->answers };
}
$redis->accept('fickle');
ok($node->wait_until_sent, 'after ten times kill -9 everything is sent');
my @expected = 1 .. $node->sql('SELECT n FROM turn');
is_exactly_once([ $redis->bodies('steady') ], \@expected, 'the steady stream is whole');
is($redis->sequence('steady'), "@expected", '... in order');
my @fickle = $redis->bodies('fickle');
is_exactly_once(\@fickle, \@expected, 'so is the one that refused now and then');
is("@fickle", "@expected", '... in order');

done_testing();
