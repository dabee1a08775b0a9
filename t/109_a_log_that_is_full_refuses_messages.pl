# outbox.max_log_size: if Redis is away for long, the log does not fill the disk.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes qw(usleep);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.max_log_size = '4MB'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
END
my @sent;

# Enqueues a hundred messages of 8 kB that cannot be compressed; returns the error if they are refused.
sub enqueue
{
	my $body = @sent + 1;
	my $error = $node->sql_error(<<END);
SELECT outbox_enqueue('d', '$body ' || (SELECT string_agg(md5('$body' || i || j), '') FROM generate_series(1, 256) j)) FROM generate_series(1, 100) i
END
	return $error if $error =~ /^[0-9A-Z]{5}:/;
	push @sent, ($body) x 100;
	return '';
}

sub is_complete
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') >= @sent } $name;
	ok($node->wait_until_sent, '... for good');
	is(join(' ', map { (split / /)[0] } $redis->bodies('d')), join(' ', @sent), '... what was taken, in order, once');
	return;
}

is(enqueue(), '', 'messages are taken');
is_complete('... and sent');

$redis->stop;
my $error = '';
wait_until { $error = enqueue(); $error ne '' };
like($error, qr/^53400: the log of the outbox is full/, 'with Redis away the log becomes full');
cmp_ok($node->status('log_size'), '>=', 4 * 1024 * 1024, '... at its size');
cmp_ok($node->status('log_size'), '<', 16 * 1024 * 1024, '... or not much beyond it');
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x')}), qr/^53400/, '... then a small one is refused as well');
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x', deliver_at => now() + interval '1 day')}), qr/^53400/, '... or a scheduled one');
like($node->sql_error(q{BEGIN; SELECT outbox_begin('m'); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT}), qr/^53400/, '... the whole transaction');
eventually { $node->status('problem') =~ /^Redis cannot be used.* The log is full, too, so messages are refused\.$/ } '... and status names the cause and that';
is($node->sql(q{SELECT outbox_begin('m') AND outbox_commit() = 0}), 't', 'a message that sends nothing is processed');
is($node->sql(q{SELECT count(*) FROM outbox.records}), 1, '... and that is its first time');
$node->restart;
like($node->sql_error(q{SELECT outbox_enqueue('d', 'x')}), qr/^53400/, 'it is full after a restart, too');
is($node->sql(q{SET outbox.max_log_size = '1GB'; SELECT count(outbox_enqueue('other', 'by a superuser'))}), 1, 'a superuser may set another limit');

$redis->start;
is_complete('with Redis back all is sent');
is($redis->count('other'), 1, '... also beyond the limit');
wait_until { $error = enqueue(); $error eq '' };
is($error, '', 'when the log has been emptied messages are taken again');
is_complete('... and sent');

# What was sent stays in the log for some time, and may fill it.
$node->set('outbox.replay_window' => '1h');
wait_until { $error = enqueue(); $error ne '' };
like($error, qr/^53400/, 'messages that are sent but kept for a replay fill the log, too');
ok($node->wait_until_sent, '... though all are sent');
eventually { $node->status('problem') =~ /^The log is full, so messages are refused. Raise outbox.max_log_size/ } '... and status says so';
$node->set('outbox.max_log_size' => '0');
eventually { $node->status('problem') eq '' } '... until the limit is lifted';
$redis->stop;
is(join('', map { enqueue() } 1 .. 8), '', 'without a limit none is refused');
$redis->start;
is_complete('... and all are sent');

# A segment is locked while it is emptied, or by somebody else.
my $other = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state <> 'current' ORDER BY state = 'empty' DESC LIMIT 1});
my $locker = $node->session;
$node->set('outbox.max_log_size' => '1GB');
$locker->query_safe("BEGIN; LOCK TABLE outbox.log_$other IN ACCESS EXCLUSIVE MODE");
is($node->sql(q{SET statement_timeout = '150s'; SELECT count(outbox_enqueue('unhindered', 'x'))}), 1, 'finding the size of the log does not wait for a segment that is locked');
is($node->sql(q{SET statement_timeout = '150s'; SELECT log_size > 0 FROM outbox.status}), 't', '... nor does outbox.status');
$locker->query_safe('COMMIT');
$locker->quit;

# What is remembered of deferred messages is removed with their segment, however many there are.
$node->set('outbox.replay_window' => '1s');
$node->sql(q{SELECT outbox_enqueue('later', 'x', deliver_at => now() + interval '500 ms') FROM generate_series(1, 20)});
eventually { $redis->count('later') == 20 } 'messages were deferred and sent';
my $scans = q{SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'deferred_tombstone_idx'};
eventually { $node->sql('SELECT count(*) FROM outbox.deferred') == 0 } '... and are forgotten';
eventually { $node->sql($scans) > 0 } '... found by an index';

done_testing();
