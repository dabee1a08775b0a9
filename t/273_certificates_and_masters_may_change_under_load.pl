# Certificates, keys and authorities may be replaced while messages flow over TLS: what is
# connected goes on, and each new connection has the new files. When the master is killed,
# the sentinels name the next one over TLS, too.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use File::Copy qw(copy);
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

my $folder = PostgreSQL::Test::Utils::tempdir();
my ($old, $new) = map { CertificateAuthority->new($_) } 'the old one', 'the new one';
my %of = map { $_->{name} => { server => $_->issue('IP:127.0.0.1'), client => $_->issue('DNS:outbox') } } $old, $new;
my @only_known = ('--tls-auth-clients', 'yes', '--tls-replication', 'yes');

# Replaces a file of the outbox's, as those who care do.
sub put
{
	my ($name, $file) = @_;
	copy($file, "$folder/$name.new") or die "could not copy $file: $!";
	chmod 0600, "$folder/$name.new";
	rename "$folder/$name.new", "$folder/$name" or die "could not rename $name: $!";
	return;
}

put('ca', $old->ca);
put($_, $of{'the old one'}{client}{$_}) foreach 'cert', 'key';
my $redis = Redis->new(tls => $of{'the old one'}{server}, config => \@only_known);
my $node = Outbox->create('main', conf => <<"END");
outbox.redis_url = '@{[ $redis->tls_url ]}'
outbox.redis_tls_ca_file = '$folder/ca'
outbox.redis_tls_cert_file = '$folder/cert'
outbox.redis_tls_key_file = '$folder/key'
END
$node->sql('CREATE TABLE ledger (n bigint)');
my $script = <<'END';
\set n random(1, 9000000000000000)
BEGIN;
INSERT INTO ledger VALUES (:n);
SELECT outbox_enqueue('ledger', :n::text);
COMMIT;
END

# Waits until 200 more messages have arrived.
sub flows
{
	my ($server) = @_;
	my $count = $server->count('ledger');
	return wait_until { $server->count('ledger') >= $count + 200 };
}

# The number that Redis has given the connection of the dispatcher, when there is no other.
sub connection
{
	my $number;
	wait_until { ($number) = $redis->command('CLIENT', 'LIST', 'TYPE', 'normal') =~ /^id=(\d+) (?!.*cmd=client)[^\n]*\n.*cmd=client.*\n\z/ };
	return $number // '';
}

# Ends the load; all that committed must be there, once.
sub check_books
{
	my ($load, $server, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$load->stop;
	$node->wait_until_sent;
	is_exactly_once([ $server->bodies('ledger') ], [ split /\n/, $node->sql('SELECT n FROM ledger') ], $name);
	return;
}

my $load = $node->start_load(clients => 2, rate => 300, scripts => [$script]);
flows($redis);
my $first = connection();
like($first, qr/^\d+$/, 'messages flow over a connection');

my $send = q{SELECT outbox_send('d', 'x')};
my ($server, $client) = @{ $of{'the new one'} }{ 'server', 'client' };
$redis->command('CONFIG', 'SET', 'tls-ca-cert-file', $new->ca, 'tls-cert-file', $server->{cert}, 'tls-key-file', $server->{key});
like($node->sql_error($send), qr/the certificate of the server is not accepted/, 'Redis has another certificate: new connections see it');
put('ca', $new->ca);
like($node->sql_error($send), qr/the server does not accept the certificate of outbox.redis_tls_cert_file/, '... and it does not know ours');
put('cert', $client->{cert});
like($node->sql_error($send), qr/could not load the file of outbox.redis_tls_key_file/, '... half of the new one is none');
put('key', $client->{key});
like($node->sql($send), qr/^\d+-\d+$/, '... the new one is accepted');
flows($redis);
is(connection(), $first, 'messages still flow over the connection that there was');

$redis->command('CLIENT', 'KILL', 'ID', $first);
ok(flows($redis), 'cut off, the dispatcher connects with the new files');
my $second = connection();
$node->reload;
eventually { connection() ne $second } 'a reload makes it connect again';
flows($redis);
check_books($load, $redis, 'each message is there once');

# A failover
my $replica = Redis->new(tls => $server, config => [ @only_known, '--replicaof', '127.0.0.1 ' . $redis->tls_port, '--repl-diskless-sync-delay', '0' ]);
my @sentinels = map {
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/sentinel.conf';
	append_to_file($file, sprintf <<'END', $redis->tls_port);
tls-replication yes
sentinel monitor outbox 127.0.0.1 %d 2
sentinel down-after-milliseconds outbox 3000
sentinel failover-timeout outbox 3000
END
	Redis->new(tls => $server, sentinel => $file, config => [ '--tls-auth-clients', 'yes' ]);
} 1 .. 3;

# They cannot agree on anything until they know each other and a replica that they may choose.
foreach my $sentinel (@sentinels)
{
	wait_until
	{
		my %master = @{ $sentinel->command('SENTINEL', 'MASTER', 'outbox') };
		my @replicas = map { +{@$_} } @{ $sentinel->command('SENTINEL', 'REPLICAS', 'outbox') };
		$master{'num-other-sentinels'} == 2 && grep { $_->{'master-link-status'} eq 'ok' } @replicas;
	};
}
$node->set('outbox.redis_url' => 'rediss+sentinel://' . join(',', map { '127.0.0.1:' . $_->tls_port } @sentinels) . '/outbox');
$load = $node->start_load(clients => 2, rate => 300, scripts => [$script]);
ok(flows($redis), 'sentinels name the master over TLS');
$redis->kill9;
ok(wait_until { $replica->command('ROLE')->[0] eq 'master' } && flows($replica), 'it is killed: messages flow to the next');
check_books($load, $replica, 'each message is there once');
eventually { $node->sql('SELECT count(*) FROM outbox.problems') == 0 } 'and nothing is left to be corrected' or diag $node->sql('SELECT * FROM outbox.problems');

$_->stop foreach @sentinels;
done_testing();
