# A Redis Cluster is reached through any node of the URL that can answer, with TLS and a login
# that may do no more than it needs. What cannot be reached is an error that names it.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use Impostor;
use Outbox;
use PostgreSQL::Test::Utils;
use Proxy;
use RedisCluster;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

my $authority = CertificateAuthority->new('the right one');
my $cluster = RedisCluster->new(replicas => 0, tls => $authority->issue('IP:127.0.0.1'));
my @nodes = $cluster->nodes;
my $node = Outbox->create('main', redis => $nodes[0], extension => 1, conf => <<"END");
outbox.dispatch = off
outbox.redis_tls_ca_file = '@{[ $authority->ca ]}'
END
my @streams = map { "s$_" } 1 .. 8;
$_->command('ACL', 'SETUSER', 'app', 'on', '>sw0rdfish', '~s*', '+xadd', '+cluster|info', '+cluster|slots') foreach @nodes;

# The error of outbox_send() with this URL; nothing if there is none.
sub error_with
{
	my ($url, $stream) = @_;
	my ($status, undef, $error) = $node->psql('postgres', "SET outbox.redis_url = '$url'; SELECT outbox_send('$stream', 'x')", extra_params => ['-q']);
	return $status == 0 ? '' : $error;
}

my $tls = 'rediss+cluster://app:sw0rdfish@' . join ',', map { '127.0.0.1:' . $_->tls_port } @nodes;
is(error_with($tls, $_), '', "a message to $_ with TLS and a login") foreach @streams;
is_deeply([ map { $cluster->count($_) } @streams ], [ map { 1 } @streams ], '... has come to the node of its stream');
like(error_with($tls =~ s/:sw0rdfish//r, 's1'), qr/could not log in: WRONGPASS/, '... and nothing without a password');
like(error_with($tls =~ s/sw0rdfish/w0rdfish/r, 's1'), qr/could not log in: WRONGPASS.* \(Redis at 127.0.0.1:\d+, user "app", TLS\)/, '... or a wrong one');
like(error_with($tls, 'forbidden'), qr/the message was not added: NOPERM/, '... or where it may not');

# Nodes that lead astray.
my $plain = join ',', map { '127.0.0.1:' . $_->port } @nodes;
my $cut_off = Impostor->new(app => sub { $_[1] eq 'CLUSTER' ? "\$18\r\ncluster_state:fail\r\n" : "-CLUSTERDOWN The cluster is down\r\n" });
my $loading = Impostor->new(app => sub { "-LOADING Redis is loading the dataset in memory\r\n" });
my $silent = Impostor->new(app => sub { $_[1] eq 'CLUSTER' ? '' : "+OK\r\n" });
my $loop = Impostor->new(app => sub { $_[1] eq 'XADD' ? "-MOVED 1 127.0.0.1:" . $_[0]->sockport . "\r\n" : "+OK\r\n" });
my $vague = Impostor->new(app => sub { $_[1] eq 'XADD' ? "-MOVED 1 ?:6379\r\n" : "+OK\r\n" });
is(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:1,$plain", 's1'), '', 'a node that is away is passed over');
is(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:$cut_off->{port},$plain", 's1'), '', '... and one that is cut off from the others');
is(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:$loading->{port},$plain", 's1'), '', '... and one that is loading its data');
is(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:$silent->{port},$plain", 's1'), '', '... and one that is silent');
like(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:1,127.0.0.1:$cut_off->{port}", 's1'), qr/CLUSTERDOWN The cluster is down/, '... unless there is no other');
like(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:1,127.0.0.1:$loading->{port}", 's1'), qr/LOADING Redis is loading/, '... which is said');
like(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:$loop->{port}", 's1'), qr/not added: MOVED 1 127.0.0.1:\d+/, 'a message is not sent round for ever');
like(error_with("redis+cluster://app:sw0rdfish\@127.0.0.1:$vague->{port}", 's1'), qr/not added: MOVED 1 \?:6379/, '... nor to a node without an address');

# A node that is told the login and asked in a fifth of the time for connecting, however many others there are.
my $distant = Proxy->new($cluster->node_of('s1'));
$distant->delay(6000);
is(error_with(join(',', 'redis+cluster://app:sw0rdfish@127.0.0.1:' . $distant->port, ('127.0.0.1:1') x 7) . "'; SET outbox.connect_timeout = '60s", 's1'), '',
	'a node that is distant is reached, although there are others');

my ($away) = map { $cluster->index_of($_) } 's1';
my ($other) = grep { $cluster->index_of($_) != $away } @streams;
$nodes[$away]->stop;
like(error_with($tls, 's1'), qr/Connection refused \(Redis at 127.0.0.1:@{[ $nodes[$away]->tls_port ]}|CLUSTERDOWN/, 'the master of a stream is away');
eventually { error_with($tls, $other) eq '' } '... others are not' or diag $cluster->node(($away + 1) % 3)->command('CLUSTER', 'INFO');

done_testing();
