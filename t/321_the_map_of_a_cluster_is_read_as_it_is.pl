# The map of a Redis Cluster says which master serves which slot, whatever the nodes know of
# their own names, and what makes no sense is not taken for a map.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IO::Socket::UNIX;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;

my $source = dirname(__FILE__) . '/..';
my $program = PostgreSQL::Test::Utils::tempdir_short() . '/slot_map';
my ($include, @libraries) = map { (run_command([ $ENV{PG_CONFIG} // 'pg_config', $_ ]))[0] } '--includedir-server', '--pkglibdir', '--libdir';
my ($hiredis) = run_command([ 'sh', '-c', 'pkg-config --cflags --libs hiredis 2>/dev/null || echo -I/usr/include/hiredis -lhiredis' ]);

system_or_bail(
	'cc', '-Wall', '-Werror', "-I$source", "-I$include", '-o', $program,
	"$source/t/support/slot_map.c", "$source/src/redis_cluster/slot_map.c", (split ' ', $hiredis), (map { "-L$_" } @libraries), '-lpgport');

# What the program reads in a reply that 127.0.0.7 gave.
sub map_of
{
	my ($reply) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $program, '127.0.0.7' ], '<', \$reply, '>', \$out, '2>', \$err) or die "$program: $err";
	return [ split /\n/, $out ];
}

# The reply of a node, as it comes.
sub reply_of
{
	my ($node) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->socket) or die "could not connect: $!";
	print {$socket} "CLUSTER SLOTS\r\nQUIT\r\n";
	$socket->flush;
	local $/ = undef;
	return scalar <$socket>;
}

my $cluster = RedisCluster->new(replicas => 1);
my @port = map { $_->port } $cluster->nodes;
my $map = [ "0-5460 127.0.0.1 $port[0]", "5461-10921 127.0.0.1 $port[1]", "10922-16383 127.0.0.1 $port[2]" ];

is_deeply(map_of(reply_of($cluster->node(0))), $map, 'a master tells who serves which slot');
is_deeply(map_of(reply_of($cluster->node(4))), $map, 'so does a replica');

$cluster->node(0)->command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'unknown-endpoint');
is_deeply(map_of(reply_of($cluster->node(0))), [ map { s/0\.1/0.7/r } @$map ], 'a host that is not known is the one that was asked');
$cluster->node(0)->command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'hostname');
is_deeply(map_of(reply_of($cluster->node(0))), $map, 'a host without a name has an address');
$cluster->node(0)->command('CONFIG', 'SET', 'cluster-announce-hostname', 'first.example');
is_deeply(map_of(reply_of($cluster->node(0))), [ $map->[0] =~ s/127.0.0.1/first.example/r, @$map[ 1, 2 ] ], 'a name is taken');

$cluster->move_slot(100, 0, 1);
is_deeply(
	map_of(reply_of($cluster->node(1))),
	[ "0-99 127.0.0.1 $port[0]", "100-100 127.0.0.1 $port[1]", "101-5460 127.0.0.1 $port[0]", @$map[ 1, 2 ] ],
	'a slot has moved');

# A reply with one range, in the form of the protocol.
sub range
{
	my ($first, $last, @address) = @_;
	return join "\r\n", '*1', '*3', ":$first", ":$last", '*' . @address, (map { ref ? '$-1' : /^\d+$/ ? ":$_" : '$' . length . "\r\n$_" } @address), '';
}

is_deeply(map_of(range(0, 9, 'host', 6379)), [ '0-9 host 6379', '10-16383 unserved' ], 'some slots are not served');
is_deeply(map_of(range(0, 16383, '?', 6379)), ['0-16383 unserved'], 'a node without an address serves none');
is_deeply(map_of(range(0, 16383, '', 6379)), ['0-16383 127.0.0.7 6379'], 'an empty host is the one that was asked');
is_deeply(map_of(range(0, 16383, 'two words', 6379)), ['0-16383 unserved'], 'what cannot be a host is none');
is_deeply(map_of(range(0, 16383, 'x' x 256, 6379)), ['0-16383 unserved'], '... nor what is too long');
is_deeply(map_of(range(0, 16383, 'host', 65536)), ['0-16383 unserved'], '... nor has it such a port');
is_deeply(map_of(range(9, 3, 'host', 6379)), ['0-16383 unserved'], 'a range that ends before it begins has no slot');
is_deeply(map_of($_), ['refused'], 'what is no map is refused')
  foreach range(0, 16384, 'host', 6379), range(0, 9, 'host'), "-ERR This instance has cluster support disabled\r\n", "*1\r\n:0\r\n", "\$-1\r\n";

done_testing();
