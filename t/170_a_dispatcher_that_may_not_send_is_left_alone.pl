# While nothing may be sent (paused, dispatch off, Redis away) commits do not wake the
# dispatcher, and it opens few windows. A message costs one run of the script. The lease
# is renewed by a clock that cannot be set.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;
use Time::HiRes 'time';

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.poll_interval = '1h'\noutbox.cleanup_interval = '1h'");
my $sent = 0;

# How often the dispatcher has slept and was woken.
sub switches
{
	my ($status) = slurp_file('/proc/' . $node->dispatcher . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $status;
}

sub windows { return $node->sql('SELECT max(number) FROM outbox.window_0'); }

sub script_runs
{
	my ($runs) = $redis->command('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/;
	return $runs;
}

# Commits many messages, and tests how often the dispatcher woke up and wrote meanwhile.
sub under_load
{
	my ($switches, $windows) = (switches(), windows());

	$node->load(clients => 2, transactions => 1000, scripts => ["SELECT outbox_enqueue('d', 'x');\n"]);
	$sent += 2000;
	return (switches() - $switches, windows() - $windows);
}

sub is_left_alone
{
	my ($name) = @_;
	my ($woken, $opened) = under_load();
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# It has timeouts of its own, of which many may pass meanwhile on a busy machine.
	cmp_ok($woken, '<', 1000, "$name: 2000 commits do not wake the dispatcher");
	cmp_ok($opened, '<=', 1, '... nor does it open windows before outbox.poll_interval is over, but to note its position');
	return;
}

sub goes_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') == $sent } '... then all is sent';
	return;
}

# While idle: the remaining life of the lease grows again.
sub is_renewed
{
	my ($name) = @_;
	my $lease = $redis->key('lease');
	my $last = $redis->command('PTTL', $lease);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually
	{
		my $before = $last;
		$last = $redis->command('PTTL', $lease);
		$last > $before;
	}
	$name;
	return;
}

# One message after the other.
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$sent++;
ok($node->wait_until_sent, 'messages pass');
my $runs = script_runs();
my $took = seconds {
	foreach (1 .. 30)
	{
		$node->sql(q{SELECT outbox_enqueue('d', 'x')});
		$sent++;
		wait_until { $redis->count('d') == $sent };
	}
};
cmp_ok(script_runs() - $runs, '<', 30 + 5 + 2 * $took, 'a message costs one run of the script');

$node->sql('SELECT outbox_pause()');
eventually { $node->status('dispatcher_state') eq 'paused' } 'all is paused';
is_left_alone('paused');
$node->sql('SELECT outbox_resume()');
goes_on();

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
is_left_alone('off');
$node->set('outbox.dispatch' => 'on');
goes_on();

$redis->stop;
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$sent++;
eventually { $node->status('redis_state') eq 'down' } 'Redis is away';
is_left_alone('without Redis');
$redis->start;
goes_on();
$node->stop;

# A clock that is set back by an hour; see libfaketime(1).
my ($library) = glob '/usr/lib/*/faketime/libfaketime.so.1';
SKIP:
{
	skip 'libfaketime is not there', 4 unless $library;
	my $offset = PostgreSQL::Test::Utils::tempdir() . '/offset';
	my $set_clock = sub { my ($to) = @_; append_to_file("$offset.new", "$to\n"); rename "$offset.new", $offset or die "rename: $!"; };

	$set_clock->('+0');
	chmod 0644, $offset;
	{
		local %ENV = (
			%ENV, LD_PRELOAD => $library, FAKETIME_TIMESTAMP_FILE => $offset,
			FAKETIME_NO_CACHE => 1, FAKETIME_DONT_FAKE_MONOTONIC => 1, DONT_FAKE_MONOTONIC => 1);
		$node->start;
	}
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	$sent++;
	goes_on();
	is_renewed('the lease is renewed');
	my $before = $node->sql('SELECT extract(epoch FROM clock_timestamp())');
	$set_clock->('-3600');
	eventually { $node->sql('SELECT extract(epoch FROM clock_timestamp())') < $before - 3000 } 'the clock is set back';
	is_renewed('... which changes nothing');
	$node->stop;
}

done_testing();
