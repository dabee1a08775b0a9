# Redis is away, hangs, is full or read-only: callers commit as usual, messages are sent
# as soon as it is back, none is lost and none is sent twice, and the server's log reports
# each change once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes 'time';

my $redis = Redis->new(started => 0);
my $node = Outbox->create('main', redis => $redis);

# From now on a Redis that hangs is given up soon; or waited for, since on a busy machine it may take long to answer.
sub give_up_soon { $node->set('outbox.connect_timeout' => '1s', 'outbox.command_timeout' => '1s'); return; }
sub be_patient { $node->set('outbox.connect_timeout' => '20s', 'outbox.command_timeout' => '20s'); return; }
$node->sql('CREATE TABLE ledger (n serial)');

my $script = <<'END';
BEGIN;
INSERT INTO ledger DEFAULT VALUES RETURNING n \gset
SELECT outbox_begin('m' || :n);
SELECT outbox_enqueue('ledger', :n::text);
SELECT outbox_commit();
COMMIT;
END

my $counted = 0;

# Tests one kind of trouble, which $begin causes and $end ends.
sub survives
{
	my ($name, $begin, $end, $error, $duration) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$begin->();
	my $took = seconds { $node->load(clients => 4, transactions => 25, scripts => [$script]) };
	cmp_ok($took, '<', 150, "$name: callers do not notice");	# else each would wait 25 times, until it is given up or for ever
	eventually { $node->status('redis_state') eq 'down' } "$name: outbox.status says that Redis is down";
	eventually { $node->status('redis_error') =~ $error } '... and why' or diag $node->status('redis_error');
	cmp_ok($node->status('pending'), '>=', 100, '... and what waits');

	# After many attempts.
	my $since = time;
	eventually { time - $since > ($duration // 1) } '... for a while';

	my $rows = $node->sql('SELECT count(*) FROM ledger');
	$end->();
	eventually { $redis->count('ledger') >= $rows } "$name: messages are sent after its end";
	ok($node->wait_until_sent, '... all of them');
	is($node->status('redis_state'), 'up', '... and the status says that Redis is up');

	my @lines = grep { /LOG: .*(Redis|redis)/ } split /\n/, $node->log_since($counted);
	$counted = $node->log_position;
	is(scalar(@lines), 2, "$name: one line of log for either change") or diag join "\n", @lines;
	return;
}

survives('not there at first', sub { }, sub { $redis->start }, qr/connect|No such file/);
survives('stopped', sub { $redis->stop }, sub { $redis->start }, qr/./);
survives('killed', sub { $redis->kill9 }, sub { $redis->start }, qr/./, 6);
survives('hanging', sub { give_up_soon(); $redis->pause }, sub { be_patient(); $redis->resume }, qr/answer/);
survives(
	'out of memory',
	sub { $redis->cli('CONFIG', 'SET', 'maxmemory', 1) },
	sub { $redis->cli('CONFIG', 'SET', 'maxmemory', 0) }, qr/OOM/);
survives(
	'read-only',
	sub { $redis->cli('REPLICAOF', '127.0.0.1', 1) },
	sub { $redis->cli('REPLICAOF', 'NO', 'ONE') }, qr/READONLY/);

my $endless;
$redis->cli('CONFIG', 'SET', 'busy-reply-threshold', 100);
survives(
	'busy',
	sub {
		$endless = $redis->start_cli('EVAL', 'while true do end', 0);
		wait_until { eval { $redis->command('PING') }; $@ =~ /BUSY/ };
	},
	sub { $redis->cli('SCRIPT', 'KILL'); $endless->finish }, qr/BUSY|answer/);

#
# All of it under load.
#
my $load = $node->start_load(clients => 4, rate => 200, scripts => [$script]);

sub goes_on
{
	my $count = $redis->count('ledger');
	return wait_until { $redis->count('ledger') > $count + 50 };
}
goes_on();
foreach my $round (1 .. 2)
{
	$redis->kill9;
	$redis->start;
	ok(goes_on(), "killed under load, round $round");
	give_up_soon();
	$redis->pause;
	eventually { $node->status('redis_state') eq 'down' } 'hanging under load';
	be_patient();
	$redis->resume;
	ok(goes_on(), '... and back');
	$redis->cli('CONFIG', 'SET', 'maxmemory', 1);
	eventually { $node->status('redis_state') eq 'down' } 'full under load';
	$redis->cli('CONFIG', 'SET', 'maxmemory', 0);
	ok(goes_on(), '... and back');
}
ok($load->is_running, 'no caller failed');
$load->stop;
ok($node->wait_until_sent, 'everything is sent');

my @ledger = split /\n/, $node->sql('SELECT n FROM ledger');
is_exactly_once([ $redis->bodies('ledger') ], \@ledger, 'nothing is lost and nothing doubled');

done_testing();
