# With rediss:// everything goes over TLS, to a server that proves by its certificate who
# it is. Whoever cannot gets nothing, and outbox.status names the cause. A server that
# misbehaves in the handshake takes no more than the time for connecting, and holds up
# nothing meanwhile.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use IO::Socket::INET;
use IPC::Run;
use Impostor;
use Outbox;
use POSIX ();
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;
use Time::HiRes qw(usleep);

# Without TLS a URL that asks for it is refused when it is set.
unless (check_pg_config('#define USE_OPENSSL 1'))
{
	my $without = Outbox->create('main');
	like(($without->psql("postgres", q{SET outbox.redis_url = 'rediss://redis.example'}))[2], qr/TLS is not available: PostgreSQL was built without OpenSSL/, 'a build without OpenSSL');
	done_testing();
	exit;
}

my $authority = CertificateAuthority->new('the right one');
my $wrong = CertificateAuthority->new('the wrong one');
my $right = $authority->issue('DNS:localhost,IP:127.0.0.1');
my $redis = Redis->new(tcp => 1, tls => $right);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.connect_timeout = '1s'");
my $sent = 0;

# Sent by the dispatcher, and by outbox_send().
sub arrives
{
	my ($name, %setting) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.redis_url' => $redis->tls_url, %setting);
	$node->sends($redis, ++$sent, "$name: messages are sent");
	is(($node->psql('postgres', q{SET outbox.connect_timeout = '1min'; SET outbox.command_timeout = '1min'; SELECT outbox_send('d', 'x')}))[0], 0, '... and by outbox_send()');
	$sent++;
	return;
}

sub says
{
	my ($name, $regex, %setting) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.redis_url' => $redis->tls_url, %setting);
	eventually { $node->status('redis_error') =~ $regex } $name or diag $node->status('redis_error');
	return;
}

# Redis shows another certificate from now on.
sub shows
{
	my ($certificate) = @_;
	$redis->command('CONFIG', 'SET', 'tls-cert-file', $certificate->{cert}, 'tls-key-file', $certificate->{key});
	return;
}

#
# Who Redis is
#
says('an authority that the system does not know', qr/^could not connect with TLS: the certificate of the server is not accepted: .*\(Redis at 127.0.0.1:\d+, TLS\)$/);
like($node->status('problem'), qr/Correct the certificates/, '... problem says what to correct');
says('a file that is not there', qr/could not load the file of outbox.redis_tls_ca_file: No such file/, 'outbox.redis_tls_ca_file' => '/nowhere/ca.crt');
my $pipe = PostgreSQL::Test::Utils::tempdir_short() . '/pipe';
POSIX::mkfifo($pipe, oct 600) or die "mkfifo: $!";
says('a pipe', qr/the file of outbox.redis_tls_ca_file is not a regular file/, 'outbox.redis_tls_ca_file' => $pipe);
says('a pipe with a password', qr/the file of outbox.redis_password_file is empty/, 'outbox.redis_password_file' => $pipe);
$node->set('outbox.redis_password_file' => '');
says('another authority', qr/the certificate of the server is not accepted: /, 'outbox.redis_tls_ca_file' => $wrong->ca);
arrives('the right authority', 'outbox.redis_tls_ca_file' => $authority->ca);
arrives('a name', 'outbox.redis_url' => $redis->tls_url('', 'localhost'));

shows($authority->issue('DNS:redis.example'));
says('a certificate for another address', qr/the certificate of the server is not for "127.0.0.1": /);
says('... or name', qr/the certificate of the server is not for "localhost": /, 'outbox.redis_url' => $redis->tls_url('', 'localhost'));
arrives('the name that is expected', 'outbox.redis_tls_server_name' => 'redis.example');
$node->set('outbox.redis_tls_server_name' => '');
shows($authority->issue('IP:127.0.0.1', 0));
says('a certificate that has expired', qr/the certificate of the server is not accepted: certificate has expired/);
shows($right);
$redis->command('CONFIG', 'SET', 'tls-protocols', 'TLSv1.1');
says('an old version of TLS', qr/^could not connect with TLS: /);
$redis->command('CONFIG', 'SET', 'tls-protocols', 'TLSv1.2');
arrives('TLS 1.2');

#
# Who we are, to a Redis that wants to know, by either version of TLS
#
my ($ours, $strange) = ($authority->issue('DNS:outbox'), $wrong->issue('DNS:outbox'));
$redis->command('CONFIG', 'SET', 'tls-auth-clients', 'yes');
foreach my $version ('TLSv1.2', 'TLSv1.3')
{
	$redis->command('CONFIG', 'SET', 'tls-protocols', $version);
	says("$version, no certificate of ours", qr/requires a client certificate/, 'outbox.redis_tls_cert_file' => '', 'outbox.redis_tls_key_file' => '');
	says('only half of it', qr/only one of outbox.redis_tls_cert_file and/, 'outbox.redis_tls_cert_file' => $ours->{cert});
	says('one by another authority', qr/the server does not accept the certificate of outbox.redis_tls_cert_file: .*unknown ca/,
		'outbox.redis_tls_cert_file' => $strange->{cert}, 'outbox.redis_tls_key_file' => $strange->{key});
	arrives('the right one', 'outbox.redis_tls_cert_file' => $ours->{cert}, 'outbox.redis_tls_key_file' => $ours->{key});
}
says('a key of another certificate', qr/could not load the file of outbox.redis_tls_key_file: /, 'outbox.redis_tls_key_file' => $strange->{key});
chmod 0640, $ours->{key};
says('a key that others may read', qr/the file of outbox.redis_tls_key_file has group or world access/, 'outbox.redis_tls_key_file' => $ours->{key});
like($node->sql_error(q{SELECT outbox_send('d', 'x')}), qr/^08006: .*outbox.redis_tls_key_file has group or world access/, '... in the error of outbox_send()');
chmod 0600, $ours->{key};
CertificateAuthority::openssl('pkey', '-in', $ours->{key}, '-aes128', '-passout', 'pass:sw0rdfish', '-out', "$ours->{key}.locked");
chmod 0600, "$ours->{key}.locked";
says('a key with a passphrase', qr/could not load the file of outbox.redis_tls_key_file: /, 'outbox.redis_tls_key_file' => "$ours->{key}.locked");
arrives('the right key again', 'outbox.redis_tls_key_file' => $ours->{key});

#
# A server that changes its keys, and wants us to change ours, between two answers
#
my $session = $node->session;
my $port = PostgreSQL::Test::Cluster::get_free_port();
my ($in, $out) = ('', '');
my $server = IPC::Run::start(
	[ 'openssl', 's_server', '-accept', "127.0.0.1:$port", '-cert', $right->{cert}, '-key', $right->{key}, '-tls1_3', '-crlf', '-state' ],
	'<', \$in, '>&', \$out);

# Waits until it has printed something, then types this in.
sub answer
{
	my ($heard, $text) = @_;

	wait_until { $server->pump_nb; $out =~ s/$heard//s } or return 0;
	$in .= $text;
	return wait_until { $server->pump_nb; $in eq '' };
}

answer(qr/.*ACCEPT/, '');
$session->query_safe("SET outbox.redis_url = 'rediss://user:x\@127.0.0.1:$port'; SET outbox.command_timeout = '3min'");
$session->query_until(qr/asked/, "\\echo asked\nSELECT outbox_send('d', 'x');\n");
answer(qr/.*AUTH/, "K\n");
answer(qr/.*write server key update/, "+OK\n");
ok(answer(qr/read client key update.*XADD/s, "\$3\n1-1\n"), 'a server that changes its keys is understood, and understands us');
is($session->query('SELECT 1'), "1-1\n1", '... also when it answers');
$server->kill_kill;
$session->quit;

#
# Servers of other kinds: a server in clear, one with TLS that is called in clear
#
says('a server without TLS', qr/could not connect with TLS within \d+ ms; the server may not speak it/, 'outbox.redis_url' => 'rediss://127.0.0.1:' . $redis->port);
like($node->status('problem'), qr/outbox\.redis_url must name the port that Redis has for TLS/, '... problem says what to correct');
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "cannot listen: $!";
$node->set('outbox.connect_timeout' => '10min', 'outbox.redis_url' => 'rediss://localhost:' . $silent->sockport);
eventually { $node->status('redis_error IS NULL AND problem IS NULL') eq 't' } '... until that is known, nothing is said that was so with another URL';
$node->set('outbox.connect_timeout' => '1s', 'outbox.redis_url' => $redis->tls_url);
$node->sql('SELECT pg_terminate_backend(' . $node->dispatcher . ')');
says('one with TLS that is called in clear', qr/(expects|may expect) TLS/, 'outbox.redis_url' => 'redis://:sw0rdfish@127.0.0.1:' . $redis->tls_port);
like($node->status('problem'), qr/(outbox.redis_url must begin|or begin it) with "rediss"/, '... problem says what to correct');

# Attackers. What they get is kept, to see that nothing was told to them.
my $heard = PostgreSQL::Test::Utils::tempdir() . '/heard';
my %attack = (
	'never answers' => sub { sleep 3600; },
	'hangs up at once' => sub { },
	'hangs up in the middle' => sub { print { $_[0] } "\x16\x03\x03\x00\x7a\x02\x00"; },
	'talks nonsense' => sub { print { $_[0] } "-ERR unknown command\r\n" x 100; sleep 3600; },
	'drips' => sub { while (print { $_[0] } "\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03") { usleep(50_000); } },
	'sends its own alert' => sub { print { $_[0] } "\x15\x03\x03\x00\x02\x02\x50"; });
my %named = (
	'never answers' => qr/within \d+ ms; the server may not speak it/,
	'hangs up at once' => qr/with TLS: /,
	'hangs up in the middle' => qr/with TLS: the server closed the connection/,
	'talks nonsense' => qr/with TLS: the server does not speak TLS/,
	'drips' => qr/with TLS/,
	'sends its own alert' => qr/with TLS: the server refuses the connection: .*internal error/);
my %attacker;
foreach my $name (sort keys %attack)
{
	$attacker{$name} = Impostor->talk(sub {
			my ($client) = @_;
			$client->autoflush(1);
			sysread($client, my $bytes, 65536);
			append_to_file($heard, $bytes);
			$attack{$name}->($client);
	});
	says("a server that $name", $named{$name}, 'outbox.redis_url' => "rediss://user:sw0rdfish\@127.0.0.1:" . $attacker{$name}->port);
}
my $bytes = slurp_file($heard);
like($bytes, qr/^\x16\x03/, 'attackers heard a handshake');
unlike($bytes, qr/AUTH|INFO|sw0rdfish|\*\d\r\n/, '... and nothing in clear');

says('one that is called in clear and hangs up', qr/^connection lost before the first reply: .*; the server may expect TLS or not be Redis /, 'outbox.redis_url' => 'redis://127.0.0.1:' . $attacker{'hangs up at once'}->port);
like($node->status('problem'), qr/Correct the address in outbox.redis_url, or begin it with "rediss"/, '... problem says both');

# While a handshake hangs, the dispatcher leaves its database, and can be cancelled.
$node->set('outbox.connect_timeout' => '10min', 'outbox.redis_url' => 'rediss://127.0.0.1:' . $attacker{'never answers'}->port);
$node->sql('CREATE DATABASE leaves');
$node->sql('CREATE EXTENSION outbox', 'leaves');
my $dispatcher = $node->dispatcher('leaves');
ok($node->poll_query_until('postgres', "SELECT wait_event IN ('OutboxRedis', 'Extension') FROM pg_stat_activity WHERE pid = $dispatcher"), 'a handshake hangs');
cmp_ok(seconds { $node->sql('DROP DATABASE leaves') }, '<', 150, '... the database is dropped');
like($node->sql_error(q{SET statement_timeout = '100ms'; SELECT outbox_send('d', 'x')}), qr/^57014/, '... outbox_send() is cancelled');
$node->set('outbox.connect_timeout' => '1s');
cmp_ok(seconds { $node->stop('fast') }, '<', 170, '... the server stops');

$node->start;
arrives('after all of this');
unlike(slurp_file($node->logfile) . $node->sql('SELECT * FROM outbox.problems'), qr/sw0rdfish(?!@)/, 'no password is in the log');

done_testing();
