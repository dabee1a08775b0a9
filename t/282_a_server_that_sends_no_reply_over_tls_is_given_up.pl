# What TLS carries beside replies, such as tickets for sessions, is read without an end by no
# process: after the time for a reply, or more bytes than any reply has, the server is given up.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use Impostor;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

# Between us and a TLS server that has nothing to send but this many tickets. They are held back
# until there are this many bytes of them; a handshake has fewer than HANDSHAKE.
use constant { TICKETS => 70_000, HELD => 14_000_000, HANDSHAKE => 8_000 };

my $authority = CertificateAuthority->new('the right one');
my $right = $authority->issue('IP:127.0.0.1');
my $folder = PostgreSQL::Test::Utils::tempdir();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my ($in, $out) = ('', '');
my $server = IPC::Run::start([ 'openssl', 's_server', '-quiet', '-accept', "127.0.0.1:$port", '-cert', $right->{cert}, '-key', $right->{key}, '-tls1_3', '-num_tickets', TICKETS ],
	'<', \$in, '>&', '/dev/null');

# Creates the file begun when the handshake is over, full when all tickets are held and the first
# of them delivered, and then taken when the client has taken all, or refused when it has not.
sub relay
{
	my ($client) = @_;
	my ($sent, $held) = (0, '');

	binmode $client;
	sysread($client, my $bytes, 65536) or return;
	if (ord $bytes == 0)
	{
		# PostgreSQL is asked for TLS.
		syswrite $client, 'S';
		sysread($client, $bytes, 65536) or return;
	}
	my $tls = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or return;
	syswrite $tls, $bytes;
	my $select = IO::Select->new($client, $tls);
	while (length $held < HELD)
	{
		foreach my $side ($select->can_read)
		{
			sysread($side, $bytes, 1 << 20) or return;
			if ($side == $client) { syswrite $tls, $bytes; }
			elsif ($sent + length $bytes < HANDSHAKE) { $sent += syswrite $client, $bytes; }
			else
			{
				append_to_file("$folder/begun", '') if $sent < HANDSHAKE;
				$sent = HANDSHAKE;
				$held .= $bytes;
			}
		}
	}
	while ($held ne '')
	{
		my $written = syswrite($client, $held, 1 << 16) or last;
		substr($held, 0, $written, '');
		append_to_file("$folder/full", '') unless -e "$folder/full";
	}
	append_to_file($folder . ($held eq '' ? '/taken' : '/refused'), '');
	return;
}

my $node = Outbox->create('main', redis => Redis->new, conf => "outbox.redis_tls_ca_file = '$right->{ca}'");
my $impostor = Impostor->talk(\&relay);

# A session that waits for an answer is stopped until all tickets are there, and the time is up.
sub gives_up
{
	my ($name, $statements) = @_;
	my $session = $node->session;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	unlink map { "$folder/$_" } qw(begun full taken refused);
	$session->query_until(qr/asked/, "\\echo asked\n$statements\n");
	wait_until { -e "$folder/begun" };
	wait_until { $node->sql("SELECT wait_event IS NOT NULL AND state = 'active' FROM pg_stat_activity WHERE pid = $pid") eq 't' };
	kill STOP => $pid;
	my $late = time + 7;
	wait_until { -e "$folder/full" and time > $late };
	kill CONT => $pid;
	wait_until { -e "$folder/taken" or -e "$folder/refused" };
	ok(-e "$folder/refused", $name);
	$session->quit;
	return;
}

my $where = '127.0.0.1:' . $impostor->port;
gives_up('Redis', "SET outbox.redis_url = 'rediss://user:x\@$where'; SET outbox.command_timeout = '6s'; SELECT outbox_send('d', 'x');");
# The dispatcher would try the store, too.
$node->set('outbox.dispatch' => 'off');
wait_until { $node->status('dispatcher_state') eq 'off' };
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => 'postgresql://u\@$where/d?sslmode=require')");
gives_up('a PostgreSQL store', "SET outbox.connect_timeout = '6s'; BEGIN; SELECT outbox_begin('m', 'stored'); ROLLBACK;");

$server->kill_kill;
done_testing();
