# The workers of examples/partitions share the partitions of a stream. While they are killed,
# stopped and continued, join and leave, and the number of partitions changes, the messages
# of each key are handled in their order, and each counts once.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $folder = Cwd::abs_path(dirname(__FILE__) . '/../examples/partitions');
my $python = python() or plan skip_all => 'no python3 with psycopg and redis';
my $has_node = system(q{node -e 'require("pg"); require("ioredis")' >/dev/null 2>&1}) == 0;
my $lease = 2000; # ms

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
$node->sql(PostgreSQL::Test::Utils::slurp_file("$folder/schema.sql"));

my %worker;

sub start
{
	my ($name, $language) = @_;
	my %run = (name => $name, out => '', error => '');
	my $here = Cwd::getcwd();
	my @arguments = ('orders', 'billing', $name, $lease, 2);
	my @command = $language eq 'python'
	  ? ($python, 'worker.py', $node->connstr('postgres'), $redis->url, @arguments)
	  : ('node', 'worker.js', 'postgresql://' . getpwuid($>) . '@/postgres?host=' . $node->host . '&port=' . $node->port, $redis->socket, @arguments);

	chdir $folder;
	$run{run} = IPC::Run::start(\@command, '<', \undef, '>', \$run{out}, '2>', \$run{error});
	chdir $here;
	$worker{$name} = \%run;
	return;
}

sub signal_to { my ($name, $signal) = @_; $worker{$name}{run}->signal($signal); return; }
sub end { my ($name, $signal) = @_; signal_to($name, $signal); eval { $worker{$name}{run}->finish }; return delete $worker{$name}; }

# How many partitions each worker has, by its name.
sub shares
{
	my %share = map { (split /:/)[0] => 0 } @{ $redis->command('ZRANGE', 'billing:orders:workers', 0, -1) };
	$share{ (split /:/)[0] }++ foreach @{ $redis->command('HVALS', 'billing:orders:partitions') };
	return join ' ', map { "$_=$share{$_}" } sort keys %share;
}

# Sends the next messages of each key.
my $sent = 0;

sub send_messages
{
	my ($count) = @_;

	$node->sql(<<"SQL");
SELECT outbox_enqueue('orders', jsonb_build_object('number', i), message_id => format('k%s-%s', k, i), key => 'k' || k)
FROM generate_series($sent + 1, $sent + $count) i, generate_series(1, 24) k;
SQL
	$sent += $count;
	return;
}

# Changes the number of partitions, after all that was sent before.
sub spread
{
	my ($partitions) = @_;

	$node->wait_until_sent;
	$node->sql("SELECT outbox_set_destination('orders', partitions => $partitions)");
	eventually { ($redis->command('HGET', 'outbox:partitions:orders', 'partitions') // 0) == $partitions } "there are $partitions partitions";
	return;
}

sub handled { return $node->sql('SELECT count(*) FROM handled'); }

sub check_books
{
	my ($what) = @_;
	eventually { handled() == 24 * $sent } "$what: all is handled";
	is($node->sql(<<"SQL"), 24, '... the messages of each key in their order, each once');
SELECT count(*) FROM (SELECT key FROM handled GROUP BY key
	HAVING array_agg((body::json ->> 'number')::integer ORDER BY place) = array(SELECT generate_series(1, $sent))) t
SQL
	return;
}

spread(8);
start('a', 'python');
start('b', $has_node ? 'node' : 'python');
start('c', 'python');
eventually { shares() eq 'a=3 b=3 c=3' } 'three workers share eight partitions and the stream itself';
send_messages(10);
check_books('nothing happens');

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
send_messages(10);
eventually { $worker{a}{run}->pump_nb; $worker{a}{out} =~ /^lost/m } 'a worker whose partitions were taken is refused, and says so';
check_books('... every partition was taken by somebody else');

send_messages(20);
wait_until { handled() > 24 * 20 };
end('a', 'KILL');
signal_to('b', 'STOP');
start('d', 'python');
send_messages(10);
spread(5);
send_messages(10);
eventually { shares() =~ /^c=\d d=\d$/ } 'the partitions of a worker that was killed and of one that is stopped go to others';
check_books('one is killed, one is stopped, one joins, and the number of partitions changes');

signal_to('b', 'CONT');
wait_until { eval { $worker{b}{run}->pump_nb }; !$worker{b}{run}->pumpable || shares() =~ /b=/ };
start('b', 'python') unless shares() =~ /b=/; # the server had ended its transaction
end('c', 'TERM');
eventually { shares() eq 'b=3 d=3' } 'one comes back and one leaves: the others share';
end($_, 'TERM') foreach 'b', 'd';
foreach my $partitions (9, 3, 7)
{
	send_messages(5);
	spread($partitions);
}
send_messages(5);
start('d', 'python');
start('e', $has_node ? 'node' : 'python');
check_books('nobody was there while the number changed three times');

# Redis loses its newest entries and gets them again, by a clock that is behind.
end('e', 'TERM');
eventually { shares() eq 'd=8' } 'one worker has all';
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
is(handled(), 24 * $sent + 2, '... and what comes again does not count again');

# It loses the layout as well, and what it is told then has a time that is behind, too.
my %layout = @{ $redis->command('HGETALL', 'outbox:partitions:orders') };
$redis->command('HDEL', 'outbox:partitions:orders', grep { /^past/ } keys %layout);
$redis->command('HINCRBY', 'outbox:partitions:orders', 'epoch', -1_000_000);
start('f', $has_node ? 'node' : 'python');
eventually { shares() =~ /^d=\d f=\d$/ } 'a layout that seems older than what was reached is shared';
send_messages(5);
eventually { handled() == 24 * $sent + 2 } '... and its messages are handled';
end($_, 'TERM') foreach keys %worker;

done_testing();
