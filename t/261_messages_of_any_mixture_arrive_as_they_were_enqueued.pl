# A batch says once what messages in a row have in common: their stream, the names of
# their fields, the length to trim to. Each message arrives with its own all the same,
# also behind one that is refused.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.dispatch = off');
my @dests = qw(a b refused trimmed);
my @headers = ('', '{"h": 1}', '{"h": 2}', '{"g": 1}', '{"g": "x", "h": true}');
my %expected;

# In an order without a pattern, now and then several alike in a row.
my $random = 7;
sub any { my (@of) = @_; $random = ($random * 1103515245 + 12345) % 2**31; return $of[ ($random >> 16) % @of ]; }

my $sql = '';
my ($dest, $headers, $cause) = ('a', '', 0);
foreach my $n (1 .. 700)
{
	$dest = any(@dests) if any(0, 1);
	$headers = any(@headers) if any(0, 1);
	$cause = any(0, 1) if any(0, 0, 1);
	my $call = "SELECT outbox_enqueue('$dest', 'body $n'::text, " . ($headers ? "'$headers'" : 'NULL') . ", 'm$n');";
	$sql .= $cause ? "BEGIN; SELECT outbox_begin('c$n'); $call SELECT outbox_commit(); COMMIT;\n" : "$call\n";

	my %fields = (id => "m$n", body => "body $n");
	$fields{cause} = "c$n" if $cause;
	$fields{$1} = $2 while $headers =~ /"(\w)": "?(\w+)/g;
	push @{ $expected{$dest} }, \%fields;
}
# The entries of a stream, each without its time.
sub fields
{
	my ($stream) = @_;
	my @entries = map { +{ @{ $_->[1] } } } @{ $redis->command('XRANGE', $stream, '-', '+') };

	delete $_->{time} foreach @entries;
	return @entries;
}

$node->sql(q{SELECT outbox_set_destination('trimmed', maxlen => 1000000)});
$redis->command('SET', 'refused', 'of another type');
$node->sql($sql);
$node->set('outbox.dispatch' => 'on');

eventually { $node->status('pending - deferred') == 0 && $node->status('deferred') == @{ $expected{refused} } } 'all but what is refused is sent';
foreach my $stream (qw(a b trimmed))
{
	is_deeply([ fields($stream) ], $expected{$stream}, "stream $stream has its messages, as they were enqueued and in their order");
}

$redis->command('DEL', 'refused');
eventually { $redis->count('refused') == @{ $expected{refused} } } 'what was refused is sent when it is accepted';
is_deeply([ fields('refused') ], $expected{refused}, '... as it was enqueued, too');

done_testing();
