# A reply of Redis may consist of very many small elements, for each of which hiredis takes
# many times as much memory as it has bytes, or of very many in each other, which it frees by
# recursion. It is refused before it has taken much.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Test::More;

# As many arrays of the greatest size as a reply may have bytes for.
my $many = "*80\r\n" . ("*65536\r\n" . "+\r\n" x 65536) x 80;

# What a node of a cluster says whose slots lie scattered over masters with two replicas each.
my $node_of = "*4\r\n" . Impostor::bulk('127.0.0.1') . ":6379\r\n" . Impostor::bulk('0' x 40) . "*2\r\n" . Impostor::bulk('hostname') . Impostor::bulk('node.example');
my $scattered = "*16384\r\n" . "*5\r\n:1\r\n:1\r\n$node_of$node_of$node_of" x 16384;

# An array in an array, as often as a stack has no room for.
my $nested = "*1\r\n" x 700_000 . ":1\r\n";

my %sent = (many => $many, scattered => $scattered, nested => $nested);
my $impostor = Impostor->new(map { my $reply = $sent{$_}; $_ => sub { return $_[1] eq 'XADD' ? $reply : undef; } } keys %sent);
my $node = Outbox->create('main');

# The highest memory of a session that has got this answer, in kB, and its error.
sub answered
{
	my ($mode) = @_;
	my ($memory, $error);

	$node->psql('postgres', "SET outbox.redis_url = '" . $impostor->url($mode) . "'; SELECT outbox_send('d', 'x');
SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000), 'VmHWM:\\s+(\\d+)'))[1]", stdout => \$memory, stderr => \$error, on_error_stop => 0);
	return ($memory, $error);
}

my ($memory, $error) = answered('many');
like($error, qr/could not send the message to Redis: invalid reply: Out of memory/, 'a reply of millions of elements is refused');
cmp_ok($memory, '<', 200_000, '... before it takes 200 MB');
($memory, $error) = answered('nested');
like($error, qr/could not send the message to Redis: invalid reply/, 'so is one of arrays in arrays');
($memory, $error) = answered('scattered');
like($error, qr/unexpected reply/, 'the largest reply that a cluster may send is read');

done_testing();
