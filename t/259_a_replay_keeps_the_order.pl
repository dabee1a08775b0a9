# outbox_replay() sends copies in the order of the calls, wherever the log has the messages:
# the segment that is written may be the one with the lower number, and of two sessions the
# later one may find room in the earlier page.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = '20ms'");

# Enqueues when a certain segment is written.
sub enqueue_into
{
	my ($segment, $body) = @_;
	return wait_until
	{
		$node->sql(<<"SQL") eq 't';
DO \$\$
BEGIN
	PERFORM outbox_enqueue('segments', '$body');
	IF NOT EXISTS (SELECT FROM outbox.log_$segment WHERE tx = pg_current_xact_id()) THEN
		RAISE SQLSTATE 'OB001';
	END IF;
EXCEPTION WHEN SQLSTATE 'OB001' THEN
	PERFORM outbox_enqueue('tick', '');
END
\$\$;
SELECT EXISTS (SELECT FROM outbox.log_$segment WHERE body = '$body');
SQL
	};
}

# The lowest segment that is empty is written next. One whose row is locked does not expire.
my $locker = $node->session;
my $n = 0;
$node->set('outbox.replay_window' => '2s');
eventually
{
	$n++;
	enqueue_into(1, "older$n") or return 0;
	my $state;
	wait_until
	{
		$state = $locker->query_safe(q{BEGIN; SELECT state FROM outbox.ring WHERE ring = 'log' AND segment = 1 FOR UPDATE});
		$locker->query_safe('ROLLBACK') if $state ne 'quiet';
		$state =~ /quiet|retired|empty/;
	};
	$state eq 'quiet';
}
'a message is in a segment that stays';
ok(enqueue_into(0, 'newer'), '... and a later one in an earlier segment');
ok($node->wait_until_sent, '... is sent');
my $before = $redis->count('segments');
my $replayed = $node->sql(q{SELECT outbox_replay('-infinity', 'segments')});
is($node->sql(<<'SQL'), "0\n0", '... a replay of nothing locks no segment when it has been done, as long as its transaction is open');
BEGIN;
SELECT outbox_replay('-infinity', 'nothing');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '^outbox.log_[0-9]';
SQL
eventually { $redis->count('segments') == $before + $replayed } '... both are sent again';
like($redis->sequence('segments'), qr/ older$n newer$/, '... in their order');
$node->set('outbox.replay_window' => '1d');
$locker->query_safe('COMMIT');

my ($writer, $other) = ($node->session, $node->session);

# Each of them has its page. The one fills it, and goes on in another; the other one still has room there.
$other->query_safe(q{SELECT outbox_enqueue('pages', 'first')});
my $large = q{SELECT outbox_enqueue('other', (SELECT string_agg(md5(i::text || random()), '') FROM generate_series(1, 50) i))};
$writer->query_safe($large) foreach 1 .. 6;
$writer->query_safe(q{SELECT outbox_enqueue('pages', 'second')});
$other->query_safe(q{SELECT outbox_enqueue('pages', 'third')});
my $log = 'outbox.log_' . $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
is($node->sql("SELECT string_agg(convert_from(body, 'UTF8'), ' ' ORDER BY ctid) FROM $log WHERE dest = 'pages'"),
	'first third second', 'a later message is in an earlier page');
ok($node->wait_until_sent, '... and is sent');
is($node->sql(q{SELECT outbox_replay('-infinity', 'pages')}), 3, 'three messages are replayed');
eventually { $redis->count('pages') == 6 } '... are sent again';
is($redis->sequence('pages'), 'first second third first second third', '... in their order');

# Much is sorted on disk.
$node->sql(q{SELECT count(outbox_enqueue('many', i::text, key => (i % 10)::text)) FROM generate_series(1, 5000) i});
ok($node->wait_until_sent, 'many messages are sent');
is($node->sql(q{SET work_mem = '64kB'; SELECT outbox_replay('-infinity', 'many')}), 5000, '... and replayed');
eventually { $redis->count('many') == 10000 } '... sent again';
ok($redis->sequence('many') eq join(' ', 1 .. 5000, 1 .. 5000), '... in their order');

# Large values are fetched when the copies are made. A replay that fails may be followed by one that does not.
my $bodies = q{SELECT string_agg(md5(convert_from(body, 'UTF8')), ' ' ORDER BY id) FROM (SELECT * FROM outbox.log_0 UNION ALL SELECT * FROM outbox.log_1 UNION ALL SELECT * FROM outbox.log_2 UNION ALL SELECT * FROM outbox.log_3) log WHERE dest = 'large'};
$node->sql(q{SELECT outbox_enqueue('large', (SELECT string_agg(md5((i * j)::text || random()), '') FROM generate_series(1, 1000) j)) FROM generate_series(1, 30) i});
ok($node->wait_until_sent, 'large messages are sent');
my $sent = $node->sql($bodies);
is($node->sql(<<'SQL'), 30, '... and replayed, after an attempt that failed in a savepoint');
SET work_mem = '64kB';
SET temp_file_limit = '64kB';
BEGIN;
SAVEPOINT attempt;
\set ON_ERROR_STOP 0
SELECT outbox_replay('-infinity');
\set ON_ERROR_STOP 1
ROLLBACK TO attempt;
RESET temp_file_limit;
SELECT outbox_replay('-infinity', 'large');
COMMIT;
SQL
eventually { $redis->count('large') == 60 } '... sent again';
is($node->sql($bodies), "$sent $sent", '... as they were');

$_->quit foreach $locker, $writer, $other;
done_testing();
