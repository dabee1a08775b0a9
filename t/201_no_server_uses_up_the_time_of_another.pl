# A host that does not answer leaves time for the next one, among sentinels and among the
# addresses of a name. A server that sends its answer byte by byte, or announces a huge
# one, is given up in time. Each error names the server.

use strict;
use warnings FATAL => 'all';

use Impostor;
use IO::Socket::IP;
use IO::Socket::INET;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Socket;
use Test::More;
use Time::HiRes qw(usleep);

# Listens where nobody accepts and the queue is full: what is sent there is dropped.
my @full;
sub black_hole
{
	my ($address, $port) = @_;
	my $listener = IO::Socket::IP->new(LocalHost => $address, LocalPort => $port // 0, Listen => 1, ReuseAddr => 1)
	  or return;

	push @full, $listener;
	foreach (1 .. 4)
	{
		push @full, IO::Socket::IP->new(PeerHost => $address, PeerPort => $listener->sockport, Blocking => 0);
		usleep(20_000);
	}
	return $listener->sockport;
}

# Sends a reply that never ends, byte by byte: to INFO, or to every command.
sub drip
{
	my ($client, $command) = @_;
	return undef unless $command eq 'INFO' or $command eq 'XADD';
	while (1) { print {$client} '+'; usleep(100_000); }
}

my $impostor = Impostor->new(
	drips => \&drip,
	counts => sub { return $_[1] eq 'INFO' || $_[1] eq 'XADD' ? "*2000000000\r\n" : undef; },
	nests => sub { return $_[1] eq 'INFO' ? '*60000' . "\r\n*60000" x 6 . "\r\n" : undef; },
	floods => sub { my ($client) = @_; return undef unless $_[1] eq 'INFO'; print {$client} "\$500000000\r\n" or return ''; while (print {$client} 'x' x 65536) { } return ''; });
my $redis = Redis->new(tcp => 1);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.connect_timeout = '2s'\noutbox.command_timeout = '1s'");

sub says
{
	my ($url, $regex, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.redis_url' => $url);
	eventually { $node->status('redis_error') =~ $regex } $name or diag $node->status('redis_error');
	return;
}

# Sent by the dispatcher, and by outbox_send().
sub arrives
{
	my ($url, $name) = @_;
	my $count = $redis->count('d');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.redis_url' => $url);
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	eventually { $redis->count('d') > $count } "$name: messages are sent";
	eventually { ($node->psql('postgres', q{SELECT outbox_send('d', 'x')}))[0] == 0 } '... and by outbox_send()';
	return;
}

# Sentinels that are off, or hang, before one that is there.
my $hole = black_hole('127.0.0.1') or die "could not listen: $!";
my $sentinel = Impostor->new(plain => sub {
	return $_[1] eq 'SENTINEL' ? "*2\r\n" . Impostor::bulk('127.0.0.1') . Impostor::bulk($redis->port) : undef;
});
my $hangs = Impostor->new(plain => sub { sleep 3600; });
my $dead = Impostor->new(plain => sub { return $_[1] eq 'SENTINEL' ? "*2\r\n" . Impostor::bulk('127.0.0.1') . Impostor::bulk($hole) : undef; });

# Named by host, for looking that up takes a moment; what is local connects immediately.
sub sentinels { my ($first) = @_; return "redis+sentinel://127.0.0.1:$first,localhost:" . $sentinel->port . '/m'; }

arrives(sentinels($hole), 'a sentinel that is off');
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
arrives(sentinels($hangs->port), 'one that hangs');
arrives(sentinels($dead->port), 'one whose master is off');

# A server that accepts connections and says nothing, as one that is stopped does: the master that a
# sentinel names, and a node of a cluster that is told a password. No answer would come for much longer
# than the time for connecting.
my $mute = Impostor->talk(sub { sleep 3600; });
my $misled = Impostor->new(plain => sub { return $_[1] eq 'SENTINEL' ? "*2\r\n" . Impostor::bulk('127.0.0.1') . Impostor::bulk($mute->port) : undef; });
my $member = Impostor->new(worker => sub { return $_[1] eq 'CLUSTER' ? Impostor::bulk("cluster_state:ok\r\n") : undef; });
$node->set('outbox.command_timeout' => '30s');
arrives(sentinels($misled->port), 'one whose master is silent');
like($node->sql("SET outbox.redis_url = 'redis+cluster://worker:x\@127.0.0.1:" . $mute->port . ',127.0.0.1:' . $member->port . q{'; SELECT outbox_send('d', 'x')}),
	qr/1-1/, 'a node of a cluster that is silent: messages are sent by way of the next one');
$node->set('outbox.command_timeout' => '1s');

# A name with two addresses, the first of which does not answer.
my (undef, @addresses) = Socket::getaddrinfo('localhost', undef, { socktype => SOCK_STREAM });
my ($first) = map { (Socket::getnameinfo($_->{addr}, Socket::NI_NUMERICHOST))[1] } @addresses;
SKIP:
{
	skip 'localhost has no address of IPv6 that comes first', 2 unless @addresses > 1 and $first eq '::1' and black_hole('::1', $redis->port);
	arrives('redis://localhost:' . $redis->port, 'the first address of a name is off');
}

# Answers that do not end.
says($impostor->url('drips'), qr/did not answer within 1000 ms \(Redis at 127.0.0.1:\d+, user "drips"\)/, 'an answer that drips');
eventually { slurp_file($node->logfile) =~ /Redis cannot be used: .*Redis at 127.0.0.1:\d+, user "drips"/ } '... as the log says';
says($impostor->url('counts'), qr/invalid reply: .*user "counts"/, 'an answer of two billion elements');
says($impostor->url('nests'), qr/did not answer within 1000 ms .*user "nests"/, 'lists in lists');
says($impostor->url('floods'), qr/its reply is too large .*user "floods"/, 'an answer of 500 MB');
my $memory = slurp_file('/proc/' . $node->dispatcher . '/status');
cmp_ok($memory =~ /VmPeak:\s+(\d+)/ ? $1 : 0, '<', 4_000_000, 'none of them made the dispatcher take gigabytes');
foreach my $behaviour ('drips', 'counts')
{
	$node->set('outbox.redis_url' => $impostor->url($behaviour));
	my $took = seconds { like($node->sql_error(q{SELECT outbox_send('d', 'x')}), qr/^08006: .*user "$behaviour"/, "outbox_send() to one that $behaviour") };
	cmp_ok($took, '<', 150, '... ends');
}

# How often a process has waited.
sub waits { my ($pid) = @_; return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : 0; }

# Sets something, and waits until the dispatcher has read it, whatever it is doing; returns the place in the log.
sub reads_settings
{
	my (%setting) = @_;
	my $pid = $node->dispatcher;
	my $position = $node->log_position;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set(%setting);
	eventually { $node->log_since($position) =~ /checkpointer updated shared memory configuration values/ } '... and meanwhile all processes are told to read the settings again';
	my $before = waits($pid);
	eventually { waits($pid) > $before + 5 } '... as the dispatcher does';
	return $position;
}

# Each error names the server.
my $nobody = PostgreSQL::Test::Cluster::get_free_port();
my $file = $node->basedir . '/password';
append_to_file($file, "swordfish\n");
says("redis://127.0.0.1:$nobody/7", qr/^could not connect: Connection refused \(Redis at 127.0.0.1:$nobody, database 7\)$/, 'a host');
says('unix:///nowhere/redis.sock', qr/^could not connect: .*\(Redis at "\/nowhere\/redis.sock"\)$/, 'a socket');
says("redis://127.0.0.1:$hole", qr/^could not connect within \d+ ms \(Redis at 127.0.0.1:$hole\)$/, 'a host that is off');
says('redis://nobody.invalid', qr/^could not look up the host: .*\(Redis at nobody.invalid:6379\)$/, 'a name');
$node->set('outbox.redis_password_file' => $file);
says('redis://worker:secret@127.0.0.1:' . $redis->port, qr/^could not log in: WRONGPASS.*\(Redis at 127.0.0.1:\d+, user "worker", password file "\Q$file\E"\)$/, 'a user');
my $error = $node->sql_error(q{SELECT outbox_send('d', 'x')});
like($error, qr/WRONGPASS.*user "worker", password file/, '... in the error of outbox_send()');
like($node->status('problem'), qr/Redis cannot be used.*WRONGPASS.*password file.*\. Correct the user in outbox\.redis_url, and the password there or, if outbox\.redis_password_file is set, in that file\./, '... in problem, which says what to correct');

# ... also if Redis was restarted without the password that was set while it ran.
says('redis://127.0.0.1:' . $redis->port, qr/^could not log in: ERR AUTH .*\(Redis at 127.0.0.1:\d+, password file "\Q$file\E"\)$/, 'a password that Redis does not have');
like($node->status('problem'), qr/ Set the password in that server again \(requirepass\), or remove it from outbox\.redis_url, and reset the setting of the file that it is in\./, '... with what to do');

# ... also where the settings are read again while a sentinel is asked.
my ($asked, $other) = map { PostgreSQL::Test::Utils::tempdir() . "/$_" } 'asked', 'other';
append_to_file($other, "swordfish\n");
my $slow = Impostor->new(plain => sub {
	return undef unless $_[1] eq 'SENTINEL';
	append_to_file($asked, '') unless -e $asked;
	usleep(20_000) until -e "$asked.answer";
	return "*2\r\n" . Impostor::bulk('127.0.0.1') . Impostor::bulk($nobody);
});
$node->set('outbox.connect_timeout' => '10min', 'outbox.command_timeout' => '10min', 'log_min_messages' => 'debug2',
	'outbox.redis_url' => 'redis+sentinel://127.0.0.1:' . $slow->port . '/m');
eventually { -e $asked } 'a sentinel is asked';
my $log = reads_settings('outbox.redis_password_file' => $other);
append_to_file("$asked.answer", '');
eventually { $node->log_since($log) =~ /could not connect: .*\(Redis at 127.0.0.1:$nobody, password file "[^"]*"\)/ } '... then its answer comes';
like($node->log_since($log), qr/could not connect: .*\(Redis at 127.0.0.1:$nobody, password file "\Q$file\E"\)/, '... and the error names the file that was read');
$node->set('outbox.redis_password_file' => '');

# ... or while a node of a cluster is: the login of the new URL is not for the other nodes of the old one.
my ($dialed, $told) = map { PostgreSQL::Test::Utils::tempdir() . "/$_" } 'dialed', 'told';
my $ignorant = Impostor->new(plain => sub {
	append_to_file($dialed, '') unless -e $dialed;
	usleep(20_000) until -e "$dialed.answer";
	return Impostor::bulk('cluster_state:fail');
});
my $curious = Impostor->new(worker => sub { append_to_file($told, ''); return undef; });
$node->set('outbox.redis_url' => 'redis+cluster://127.0.0.1:' . $ignorant->port . ',127.0.0.1:' . $curious->port);
eventually { -e $dialed } 'a node of a cluster is asked';
reads_settings('outbox.redis_url' => 'redis://worker:cuttlefish@127.0.0.1:' . $redis->port);
append_to_file("$dialed.answer", '');
eventually { $node->status('redis_error') =~ /WRONGPASS.*\(Redis at 127.0.0.1:@{[ $redis->port ]}, user "worker"\)/ } '... and the server of the new URL is tried';
ok(!-e $told, '... but no other node of the old one was sent its login');
$node->set('outbox.redis_password_file' => $file, 'log_min_messages' => 'warning');

unlink $file;
eventually { $node->status('redis_error') =~ /could not open the file of outbox.redis_password_file: .*password file "\Q$file\E"/ } 'a password file that is not there';
unlike($node->status('problem') . $error, qr/swordfish|secret/, 'no password is shown');

# A connection fails when the settings that name another server have been read: until that one
# has answered or failed, nothing is said.
my $tried = PostgreSQL::Test::Utils::tempdir() . '/tried';
my $leaves = Impostor->talk(sub {
	append_to_file("$tried.first", '');
	usleep(20_000) until -e "$tried.leave";
});
my $silent = Impostor->talk(sub { append_to_file("$tried.second", ''); sleep 3600; });
$node->set('outbox.redis_password_file' => '', 'log_min_messages' => 'debug2');
arrives('redis://127.0.0.1:' . $redis->port, 'a server that is there');
$node->set('outbox.redis_url' => 'redis://127.0.0.1:' . $leaves->port);
eventually { -e "$tried.first" } 'another one is connected to';
reads_settings('outbox.redis_url' => 'redis://127.0.0.1:' . $silent->port);
append_to_file("$tried.leave", '');
eventually { -e "$tried.second" } '... it hangs up, and the next one is connected to';
is($node->status('redis_error IS NULL AND problem IS NULL'), 't', '... then nothing is said of the former one');

done_testing();
