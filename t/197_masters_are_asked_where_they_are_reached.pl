# All masters of a Redis Cluster are asked which slots they move, also those that have none, and
# at the addresses by which they are reached: by the host that was asked, if the cluster says that
# this stands for all of them; by names, if it has names, as far as a node has one.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use Ledger;
use Outbox;
use PostgreSQL::Test::Utils;
use RedisCluster;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

my $authority = CertificateAuthority->new('the right one');
my ($by_name, $by_address) = map { $authority->issue($_) } 'DNS:localhost', 'IP:127.0.0.1';
my $cluster = RedisCluster->new(replicas => 0, tls => $by_name);
my @nodes = $cluster->nodes;
my @streams = map { "s$_" } 1 .. 9;
my $node = Outbox->create('main', redis => $nodes[0], extension => 1, conf => <<"END");
outbox.dispatch = off
outbox.redis_tls_ca_file = '@{[ $authority->ca ]}'
END
my $ledger = Ledger->new($node, $cluster, @streams);

sub every_node { my (@words) = @_; $_->command(@words) foreach @nodes; return; }

# Tests that messages arrive, also after a restart: then nothing is known of the slots.
sub sends_at
{
	my ($host, $name) = @_;

	$node->set('outbox.redis_url' => "rediss+cluster://$host:" . $nodes[0]->tls_port, 'outbox.dispatch' => 'on');
	$ledger->post;
	$ledger->agrees($name) or diag $node->status('redis_error');
	$node->restart;
	$ledger->post;
	return $ledger->agrees('... and after a restart') || diag $node->status('redis_error');
}

every_node('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'unknown-endpoint');
sends_at('localhost', 'nodes are reached by the host that was asked, and not by their addresses');

# One node has a name, and no slot.
every_node('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'hostname');
$_->command('CONFIG', 'SET', 'tls-cert-file', $by_address->{cert}, 'tls-key-file', $by_address->{key}) foreach @nodes[ 0, 1 ];
$node->set('outbox.dispatch' => 'off');
$nodes[2]->command('CONFIG', 'SET', 'cluster-announce-hostname', 'localhost');
$nodes[2]->command('FLUSHALL');
every_node('CLUSTER', 'DELSLOTSRANGE', 10922, 16383);
$nodes[1]->command('CLUSTER', 'ADDSLOTSRANGE', 10922, 16383);
$cluster->wait_until_ok;
$cluster->wait_for(sub { my ($asked) = @_; grep { /,localhost/ } $cluster->lines($asked) }, 'the name is known', 0, 1);
$ledger->{streams} = [ map { "t$_" } 1 .. 9 ];
$node->sql('TRUNCATE ledger');
sends_at('127.0.0.1', 'nodes without names are reached by their addresses, and one that has a name by that');

# What is announced as an address may be a name, beside another one that means nothing here.
my $named = RedisCluster->new(replicas => 0);
foreach my $master ($named->nodes)
{
	$master->command('CONFIG', 'SET', 'cluster-announce-ip', 'localhost');
	$master->command('CONFIG', 'SET', 'cluster-announce-hostname', 'nowhere.invalid');
}
$named->wait_for(sub { my ($asked) = @_; (grep { /localhost:.*,nowhere\.invalid/ } $named->lines($asked)) == 3 }, 'both names are known', 0 .. 2);
my $beside = Outbox->create('named', redis => $named);
$beside->sql(q{SELECT outbox_enqueue('n' || i, 'x') FROM generate_series(1, 9) i});
eventually { !grep { $named->count("n$_") != 1 } 1 .. 9 } 'nodes are asked by the name that is announced as an address' or diag $beside->status('redis_error');

done_testing();
