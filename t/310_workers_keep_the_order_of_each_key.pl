# The workers of examples/partitions share the partitions of a stream. While they are killed,
# stopped and continued, join and leave, and the number of partitions changes, the messages
# of each key are handled in their order, and each counts once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Workers;

python() or plan skip_all => 'no python3 with psycopg and redis';

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $workers = Workers->new(node => $node, redis => $redis);

$workers->spread(8);
$workers->start('a', 'python');
$workers->start('b', 'node');
$workers->start('c', 'python');
eventually { $workers->shares eq 'a=3 b=3 c=3' } 'three workers share eight partitions and the stream itself';
$workers->send_messages(10);
$workers->check_books('nothing happens');

# Another database has no partitions for the stream, and writes to it without a number.
sub other_sends
{
	my ($key, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql("CREATE EXTENSION outbox; SELECT count(outbox_enqueue('orders', jsonb_build_object('number', i), key => '$key')) FROM generate_series(1, 20) i", 'other');
	eventually { $node->sql("SELECT string_agg(body::json ->> 'number', ' ' ORDER BY place) FROM handled WHERE key = '$key'") eq join ' ', 1 .. 20 } $what;
	return;
}
$node->sql('CREATE DATABASE other');
other_sends('o1', 'messages of a database without partitions are handled, in order');
$node->sql(q{SELECT outbox_set_destination('orders', partitions => 2)}, 'other');
eventually { 2 == grep { /^of:/ } @{ $redis->command('HKEYS', 'outbox:partitions:orders') } } 'it has partitions';
$node->sql('DROP EXTENSION outbox', 'other');
other_sends('o2', '... and it loses the extension, and gets it again');
$node->sql(q{DELETE FROM handled WHERE key LIKE 'o%'});

# Somebody else takes every partition.
$node->sql(q{UPDATE consumer_position SET token = token + 1});
$workers->send_messages(10);
eventually { $workers->output('a') =~ /^lost/m } 'a worker whose partitions were taken is refused, and says so';
$workers->check_books('... every partition was taken by somebody else');

$workers->send_messages(20);
wait_until { $workers->handled > 24 * 20 };
$workers->end('KILL', 'a');
$workers->signal_to('b', 'STOP');
$workers->start('d', 'python');
$workers->send_messages(10);
$workers->spread(5);
$workers->send_messages(10);
eventually { $workers->shares =~ /^c=\d d=\d$/ } 'the partitions of a worker that was killed and of one that is stopped go to others';
$workers->check_books('one is killed, one is stopped, one joins, and the number of partitions changes');

$workers->signal_to('b', 'CONT');
wait_until { eval { $workers->output('b') }; !$workers->run('b')->pumpable || $workers->shares =~ /b=/ };
$workers->start('b', 'python') unless $workers->shares =~ /b=/; # the server had ended its transaction
$workers->end('TERM', 'c');
eventually { $workers->shares eq 'b=3 d=3' } 'one comes back and one leaves: the others share';
$workers->end('TERM', 'b', 'd');
foreach my $partitions (9, 3, 7)
{
	$workers->send_messages(5);
	$workers->spread($partitions);
}
$workers->send_messages(5);
$workers->start('d', 'python');
$workers->start('e', 'node');
$workers->check_books('nobody was there while the number changed three times');

# Redis loses its newest entries and gets them again, by a clock that is behind.
$workers->end('TERM', 'e');
eventually { $workers->shares eq 'd=8' } 'one worker has all';
my ($stream) = sort { $redis->count($b) <=> $redis->count($a) } map { "orders:" . $_ } 0 .. 6;
my $entries = $redis->command('XRANGE', $stream, '-', '+');
$redis->command('DEL', $stream);
my ($start, $again) = (split(/-/, $entries->[-1][0]))[0] - 1_000_000;
foreach my $entry (@$entries)
{
	$redis->command('XADD', $stream, "$start-" . ++$again, @{ $entry->[1] });
}
my %new = (id => 'new', time => 0, key => 'new', body => '{"number": 1}');
$redis->command('XADD', $stream, "$start-" . ++$again, %new);
$redis->command('XADD', $stream, "$start-" . ++$again, %new, id => 'poison', body => 'no JSON');
$redis->command('XADD', $stream, "$start-" . ++$again, %new, id => 'newer', body => '{"number": 2}');
eventually { $node->sql(q{SELECT string_agg(body::json ->> 'number', ' ' ORDER BY place) FROM handled WHERE key = 'new'}) eq '1 2' }
'what comes after a loss is handled, though its entries have smaller ids';
is($node->sql('SELECT count(*) FROM dead_entry'), 1, '... what cannot be handled is put aside');
is($workers->handled, $workers->sent + 2, '... and what comes again does not count again');

# It loses the layout as well, and what it is told then has a time that is behind, too.
my %layout = @{ $redis->command('HGETALL', 'outbox:partitions:orders') };
$redis->command('HDEL', 'outbox:partitions:orders', grep { /^past/ } keys %layout);
$redis->command('HINCRBY', 'outbox:partitions:orders', 'epoch', -1_000_000);
$workers->start('f', 'node');
eventually { $workers->shares =~ /^d=\d f=\d$/ } 'a layout that seems older than what was reached is shared';
$workers->send_messages(5);
eventually { $workers->handled == $workers->sent + 2 } '... and its messages are handled';
$workers->end('TERM', $workers->names);

done_testing();
