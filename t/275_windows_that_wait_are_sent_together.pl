# Windows are opened also while nothing may be sent. They are then sent as one: in few runs
# of the script, and with the fence at the right message of the right window.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new(config => [ '--appendonly', 'no' ]);
my $node = Outbox->create('main', redis => $redis, conf => <<END);
outbox.poll_interval = '10ms'
outbox.max_attempts = 1
END
my $sent = 0;
my @refused;

# Opens as many windows while all is paused, each with as many messages, which are numbered;
# the names of their streams are given by an expression of the number i.
sub open_windows
{
	my ($windows, $messages, $dest) = @_;
	$dest //= q{'d'};
	$node->sql('SELECT outbox_pause()');
	eventually { $node->status('dispatcher_state') eq 'paused' } 'paused';
	$node->sql(<<"END");
DO \$\$
DECLARE opened bigint;
BEGIN
	FOR w IN 0 .. $windows - 1 LOOP
		SELECT windows INTO opened FROM outbox.status;
		PERFORM outbox_enqueue($dest, i::text) FROM generate_series($sent + w * $messages + 1, $sent + (w + 1) * $messages) i;
		COMMIT;
		WHILE (SELECT windows FROM outbox.status) = opened LOOP PERFORM pg_sleep(0.002); END LOOP;
		COMMIT;
	END LOOP;
END \$\$;
END
	is($node->status('windows'), $windows, "$windows windows wait");
	$sent += $windows * $messages;
	return;
}

sub send_them
{
	$node->sql('SELECT outbox_resume()');
	return ok($node->wait_until_sent, '... and are sent');
}

sub runs
{
	return $redis->cli('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/ ? $1 : 0;
}

sub is_in_order
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %refused = map { $_ => 1 } @refused;
	is($redis->sequence('d'), join(' ', grep { !$refused{$_} } 1 .. $sent), $name);
	return;
}

# Few runs.
open_windows(20, 50);
my $before = runs();
my $took = seconds { send_them() };
my $runs = runs() - $before;
cmp_ok($runs, '<=', 6 + $took / 3, "1000 messages in 20 windows are sent in few runs of the script ($runs)");    # it renews the lease, too
is_in_order('... in order');

# The dispatcher ends amid them.
$node->set('outbox.batch_size' => 7);
open_windows(20, 50);
$node->sql('SELECT outbox_resume()');
eventually { $redis->count('d') > 1200 } 'some are sent';
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
ok($node->wait_until_sent, '... the dispatcher ends, and all are');
is_in_order('... in order, none twice');

# Redis goes back to a moment amid them.
$node->set('outbox.batch_size' => 1);
open_windows(20, 100);
$node->sql('SELECT outbox_resume()');
eventually { $redis->count('d') > 2500 } 'some are sent';
$redis->command('SAVE');
ok($node->wait_until_sent, '... and all others');
is_in_order('... in order');
$redis->kill9;
$redis->start;
eventually { $redis->count('d') == $sent } 'a Redis that went back gets what it has lost';
is_in_order('... and only that');
$node->set('outbox.batch_size' => 500);

# Each message of three windows is refused, one at a time. What is behind it is sent, and the
# fence of the batch is one that the next builds on.
my $log = $node->log_position;
foreach my $place (1 .. 9)
{
	my $before = $redis->count('d');
	my $first = $sent;

	$redis->refuse("bad$place");
	open_windows(3, 3, "CASE WHEN i = $first + $place THEN 'bad$place' ELSE 'd' END");
	$node->sql('SELECT outbox_resume()');
	eventually { $redis->count('d') == $before + 8 && $node->status('dead, windows') eq "$place|0" }
	"message $place of three windows is refused, and the others are sent";
	my @bodies = $redis->bodies('d');
	push @refused, $first + $place;
	is(join(' ', @bodies[ $before .. $#bodies ]), join(' ', grep { $_ != $first + $place } $first + 1 .. $sent), '... in order');
}
unlike($node->log_since($log), qr/lost|FENCE/, 'the link never failed');

# The way to Redis is long: messages do not wait for the answer to those before them.
my $proxy = Proxy->new($redis);
$proxy->delay(200);
$node->set('outbox.batch_size' => 10, 'outbox.redis_url' => $proxy->url);
open_windows(20, 20);
send_them();
cmp_ok($proxy->most_under_way, '>', 4, 'where Redis is far away, more than two batches are under way');

# On a busy machine one may have its answer before the next one comes: then there are more.
foreach my $then ('NULL', 'pg_terminate_backend(dispatcher_pid)')
{
	eventually
	{
		my $half = $sent + 10;
		$node->sql(<<"END");
DO \$\$
BEGIN
	FOR i IN $sent + 1 .. $sent + 20 LOOP
		PERFORM outbox_enqueue('d', i::text);
		COMMIT;
		PERFORM pg_sleep(0.02);
		PERFORM $then FROM outbox.status WHERE i = $half;
		COMMIT;
	END LOOP;
END \$\$;
END
		$sent += 20;
		ok($node->wait_until_sent, 'messages that come one after the other');
		$proxy->most_under_way > 1;
	}
	'... are on their way at the same time';
}
is_in_order('all are there in order, none twice, though the dispatcher ended amid them');

# One more is refused, in a window that joins the run when the first ones are under way.
$node->set('outbox.batch_size' => 500, 'outbox.redis_url' => $redis->url);
$redis->refuse('bad10');
open_windows(280, 1, "CASE WHEN i = $sent + 280 THEN 'bad10' ELSE 'd' END");
$node->sql('SELECT outbox_resume()');
eventually { $node->status('dead, windows') eq '10|0' } 'the last of many windows is refused';

# All of them come back.
$redis->accept("bad$_") foreach 1 .. 10;
$node->sql('SELECT outbox_retry()');
eventually { $node->status('dead') == 0 } 'all that was refused is sent in the end';
ok($node->wait_until_sent, '... for good');
is(join(' ', map { $redis->count("bad$_") } 1 .. 10), join(' ', (1) x 10), '... once');

# So do all others, once more, when Redis has lost everything.
$redis->command('FLUSHALL');
eventually { $redis->count('d') == $sent - 10 } 'all is sent to a Redis that has lost everything';
eventually { $redis->count('bad10') > 0 } '... also what had come back';
ok($node->wait_until_sent, '... to the end');
is(join(' ', map { $redis->count("bad$_") } 1 .. 10), join(' ', (1) x 10), '... once');

done_testing();
