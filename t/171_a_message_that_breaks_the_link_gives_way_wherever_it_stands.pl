# A message that exceeds a limit of Redis is not refused: Redis closes the connection. It
# is deferred wherever it stands, and the others are sent in full batches again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new(config => [ '--proto-max-bulk-len', '1mb' ]);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.retry_delay = '1h'\noutbox.retry_max_delay = '1h'");
my $large = q{repeat('x', 2 * 1024 * 1024)};

sub is_deferred
{
	my ($dest) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { $node->sql("SELECT state || ' ' || (last_error IS NOT NULL) FROM outbox.deferred WHERE dest = '$dest'") eq 'waiting true' }
	"... \"$dest\" is deferred, with the error";
	return;
}

$node->sql(<<END);
BEGIN;
SELECT outbox_enqueue('scheduled', 'x', deliver_at => now() + interval '1 hour');
SELECT outbox_enqueue('large1', $large);
SELECT outbox_enqueue('a', '1');
COMMIT;
END
eventually { $redis->count('a') == 1 } 'behind one that is scheduled';
is_deferred('large1');

$node->sql(q{SELECT outbox_pause('paused')});
$node->sql(<<END);
BEGIN;
SELECT outbox_enqueue('paused', 'x');
SELECT outbox_enqueue('large2', $large);
SELECT outbox_enqueue('a', '2');
COMMIT;
END
eventually { $redis->count('a') == 2 } 'behind one that is paused';
is_deferred('large2');

$redis->refuse('refused');
$node->sql(<<END);
BEGIN;
SELECT outbox_enqueue('refused', 'x');
SELECT outbox_enqueue('large3', $large);
SELECT outbox_enqueue('a', '3');
SELECT outbox_enqueue('large4', $large);
SELECT outbox_enqueue('a', '4');
COMMIT;
END
eventually { $redis->count('a') == 4 } 'behind one that is refused, and another one behind it';
is_deferred('large3');
is_deferred('large4');

my $runs = sub { my ($n) = $redis->command('INFO', 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/; $n };
my $before = $runs->();
$node->sql(<<END);
SELECT outbox_enqueue(CASE n WHEN 100 THEN 'large5' ELSE 'b' END, CASE n WHEN 100 THEN $large ELSE n::text END)
FROM generate_series(1, 5000) n ORDER BY n
END
eventually { $redis->count('b') == 4999 } 'among many';
is_deferred('large5');
cmp_ok($runs->() - $before, '<', 200, '... what is behind it goes in full batches');
ok($redis->sequence('b') eq join(' ', 1 .. 99, 101 .. 5000), '... all in order, none twice');
is($redis->sequence('a'), '1 2 3 4', '... everywhere');

done_testing();
