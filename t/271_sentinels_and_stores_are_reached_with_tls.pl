# Sentinels may want TLS and a login of their own, and stores TLS: Redis by the settings of
# the outbox, PostgreSQL by what libpq reads in its URL. Passwords show nowhere, and one
# that came from a file stays no longer in memory than it is needed.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use File::Basename;
use IPC::Run;
use Outbox;
use Page;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

my $authority = CertificateAuthority->new('the right one');
my $wrong = CertificateAuthority->new('the wrong one');
my $right = $authority->issue('DNS:localhost,IP:127.0.0.1');
my $folder = PostgreSQL::Test::Utils::tempdir();
my $redis = Redis->new(tls => $right);

# One that wants TLS, a login, and our certificate.
append_to_file("$folder/sentinel.conf", sprintf <<'END', $redis->tls_port);
tls-replication yes
sentinel monitor outbox 127.0.0.1 %d 1
sentinel auth-pass outbox swordf1sh
requirepass sw0rdfish
user watcher on >sw0rdf1sh +@all ~* &*
user guest on nopass +@all ~* &*
END
my $sentinel = Redis->new(tls => $right, sentinel => "$folder/sentinel.conf", config => [ '--tls-auth-clients', 'yes' ]);
$sentinel->log_in_with('sw0rdfish');
$redis->command('CONFIG', 'SET', 'requirepass', 'swordf1sh');
$redis->log_in_with('swordf1sh');

my $node = Outbox->create('main', conf => <<"END");
outbox.redis_tls_ca_file = '@{[ $authority->ca ]}'
outbox.redis_tls_cert_file = '$right->{cert}'
outbox.redis_tls_key_file = '$right->{key}'
END
my $sentinels = 'rediss+sentinel://:swordf1sh@localhost:' . $sentinel->tls_port . '/outbox';
my $sent = 0;

sub use_url
{
	my ($url, %setting) = @_;
	return $node->restart_with('outbox.redis_url' => $url, %setting);
}

sub arrives
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->sends($redis, ++$sent, $name);
}

sub says
{
	my ($name, $regex) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $node->status('redis_error') =~ $regex } $name or diag $node->status('redis_error');
	return;
}

use_url($sentinels);
says('a sentinel that wants a login', qr/a sentinel does not know the master: NOAUTH.* \(sentinel at localhost:\d+, master "outbox"\)$/);
use_url("$sentinels?sentinel_password=w0rdfish");
says('a wrong password', qr/could not log in: WRONGPASS.* \(sentinel at localhost:\d+, master "outbox"\)$/);
use_url("$sentinels?sentinel_password=sw0rdfish");
arrives('the right one');
use_url("$sentinels?sentinel_user=watcher&sentinel_password=sw0rdf1sh");
arrives('a user');
use_url("$sentinels?sentinel_user=watcher");
says('a user without the password that he has', qr/could not log in: WRONGPASS.* \(sentinel at localhost:\d+, master "outbox"\)$/);
use_url("$sentinels?sentinel_user=guest");
arrives('a user who has none');

# Both passwords in files.
append_to_file("$folder/redis", "swordf1sh\n");
append_to_file("$folder/sentinel", "sw0rdf1sh\n");
use_url('rediss+sentinel://localhost:' . $sentinel->tls_port . '/outbox?sentinel_user=watcher',
	'outbox.redis_password_file' => "$folder/redis", 'outbox.redis_sentinel_password_file' => "$folder/sentinel");
arrives('passwords in files');
my $log = slurp_file($node->logfile);
SKIP:
{
	my $memory = memory($node->dispatcher) or skip 'the memory of another process cannot be read here', 1;
	like($memory, qr/\Q$folder\E/, 'the memory of the dispatcher has the name of a file');
	unlike($memory, qr/swordf1sh|sw0rdf1sh/, '... and no password');
}
rename "$folder/sentinel", "$folder/gone";
$node->restart;
says('a file that is gone', qr/could not open the file of outbox.redis_sentinel_password_file: No such file/);

#
# Stores
#
my $remembers = Redis->new(tls => $right);
my $postgres = Outbox->create('store', redis => $redis, conf => <<"END");
listen_addresses = '127.0.0.1'
ssl = on
ssl_ca_file = '$right->{ca}'
ssl_cert_file = '$right->{cert}'
ssl_key_file = '$right->{key}'
END
$postgres->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
$postgres->append_conf('pg_hba.conf', 'hostssl all shard 127.0.0.1/32 trust');
$postgres->reload;
my $at = 'postgresql://shard@localhost:' . $postgres->port . '/postgres?sslmode=verify-full&sslrootcert=';

sub looks_up
{
	my ($url) = @_;
	$node->sql("SELECT outbox_drop_endpoint('stored')") if $node->sql(q{SELECT count(*) FROM outbox.endpoints WHERE name = 'stored'});
	$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '$url')");
	return $node->sql_error(q{BEGIN; SELECT outbox_begin('m', 'stored'); ROLLBACK});
}

like(looks_up($remembers->tls_url), qr/^no error: .*t$/m, 'a Redis with TLS is a store');
like(looks_up($at . $authority->ca), qr/^no error: .*t$/m, '... and a PostgreSQL');
like(looks_up($at . $wrong->ca), qr/^08006: .*certificate verify failed/, '... not one of another authority');
like(looks_up(($at =~ s/localhost/store.example/r) . $authority->ca . '&hostaddr=127.0.0.1'), qr/^08006: .*does not match host name/, '... or by another name');
$node->set('outbox.redis_tls_ca_file' => $wrong->ca);
like(looks_up($remembers->tls_url), qr/^08006: .*the certificate of the server is not accepted/, '... and no Redis of another one');

#
# The tunnel of docs/operations.md, for a build without TLS
#
SKIP:
{
	my ($stunnel) = grep { -x } map { "$_/stunnel4" } split /:/, $ENV{PATH};
	skip 'there is no stunnel4', 2 unless $stunnel;
	my $socket = PostgreSQL::Test::Utils::tempdir_short() . '/redis.sock';
	my ($tunnel) = map { $_->[1] } grep { $_->[0] eq 'ini' } blocks(read_page(dirname(__FILE__) . '/../docs/operations.md'));
	$tunnel =~ s/redis.example:6379/'127.0.0.1:' . $redis->tls_port/e;
	$tunnel =~ s/redis.example/localhost/;
	$tunnel =~ s{/etc\S*}{$authority->ca}e;
	$tunnel =~ s{/run\S*}{$socket};
	append_to_file("$folder/stunnel.conf", $tunnel);
	my $run = IPC::Run::start([ $stunnel, "$folder/stunnel.conf" ], '<', \undef, '>&', "$folder/stunnel.log");
	use_url("unix://$socket");
	arrives('through the tunnel');
	$tunnel =~ s/= localhost/= redis.example/;
	$run->kill_kill;
	append_to_file("$folder/wrong.conf", $tunnel);
	$run = IPC::Run::start([ $stunnel, "$folder/wrong.conf" ], '<', \undef, '>&', "$folder/stunnel.log");
	says('not to a Redis with another name', qr/connection lost|could not connect/);
	$run->kill_kill;
}

$log .= slurp_file($node->logfile) . $node->sql('SELECT * FROM outbox.problems');
unlike($log, qr/sw[o0]rdf[i1]sh|w0rdfish/, 'no password is in the log');

done_testing();

# What a process has in its memory; nothing if we may not read it.
sub memory
{
	my ($pid) = @_;
	my $memory = '';

	open my $maps, '<', "/proc/$pid/maps" or return '';
	open my $mem, '<:raw', "/proc/$pid/mem" or return '';
	while (my $line = <$maps>)
	{
		my ($from, $to, $what) = $line =~ /^(\w+)-(\w+) rw\S+ \S+ \S+ \S+\s*(.*)/ or next;
		next if $what =~ m{^/dev|SYSV};
		($from, $to) = map { unpack 'Q>', pack 'H16', substr "0000000000000000$_", -16 } $from, $to;
		sysseek $mem, $from, 0 or next;
		sysread $mem, my $bytes, $to - $from or next;
		$memory .= $bytes;
	}
	return $memory;
}
