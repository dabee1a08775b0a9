# A real Redis server on a unix socket in a temporary folder, and a client that is safe for
# any byte. The server writes its append-only file before it answers, so that nothing that
# it acknowledged is lost by kill -9.

package Redis;

use strict;
use warnings FATAL => 'all';

use Carp;
use File::Path ();
use IO::Socket::UNIX;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(time usleep);

my @servers;
my $owner = $$;

# Starts a server. Options: tcp => 1 (listens on a loopback port too), tls =>
# {ca => file, cert => file, key => file} (listens on another one with TLS), config => ['--name', 'value', ...], started => 0, sentinel => file (of a
# sentinel's configuration, which it will write to).
sub new
{
	my ($class, %option) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir_short();
	my $self = bless {
		folder => $folder,
		socket => "$folder/redis.sock",
		port => $option{tcp} ? PostgreSQL::Test::Cluster::get_free_port() : 0,
		config => [ @{ $option{config} // [] } ],
		tls_port => $option{tls} ? PostgreSQL::Test::Cluster::get_free_port() : 0,
		sentinel => $option{sentinel}
	}, $class;

	unshift @{ $self->{config} }, '--tls-port', $self->{tls_port}, '--tls-ca-cert-file', $option{tls}{ca},
	  '--tls-cert-file', $option{tls}{cert}, '--tls-key-file', $option{tls}{key}, '--tls-auth-clients', 'no'
	  if $option{tls};
	mkdir "$folder/data" or die "could not create $folder/data: $!";
	push @servers, $self;
	$self->start if $option{started} // 1;
	return $self;
}

sub socket { return $_[0]->{socket}; }
sub port { return $_[0]->{port}; }
sub tls_port { return $_[0]->{tls_port}; }
sub url { return "unix://$_[0]->{socket}"; }

# The URL of the loopback port; $login is 'user:password@' or nothing.
sub tcp_url
{
	my ($self, $login) = @_;
	return 'redis://' . ($login // '') . "127.0.0.1:$self->{port}";
}

# The same with TLS; the host may be given by another of its names.
sub tls_url
{
	my ($self, $login, $host) = @_;
	return 'rediss://' . ($login // '') . ($host // '127.0.0.1') . ":$self->{tls_port}";
}

# From now on, the client of this module logs in with these words of AUTH.
sub log_in_with
{
	my ($self, @words) = @_;
	$self->{login} = \@words;
	return;
}

sub start
{
	my ($self) = @_;
	my @command = (
		'redis-server', '--port', $self->{port}, '--bind', '127.0.0.1',
		'--unixsocket', $self->{socket}, '--dir', "$self->{folder}/data",
		'--save', '', '--appendonly', 'yes', '--appendfsync', 'no',
		'--auto-aof-rewrite-percentage', '0', '--daemonize', 'no',
		@{ $self->{config} });

	@command = (
		'redis-server', $self->{sentinel}, '--sentinel', '--port', $self->{port}, '--bind', '127.0.0.1',
		'--unixsocket', $self->{socket}, '--dir', "$self->{folder}/data", '--daemonize', 'no', @{ $self->{config} })
	  if $self->{sentinel};
	croak 'Redis is running already' if $self->{pid};
	defined($self->{pid} = fork) or die "could not fork: $!";
	if ($self->{pid} == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', "$self->{folder}/redis.log";
		open STDERR, '>&', \*STDOUT;
		exec { $command[0] } @command or POSIX::_exit(127);
	}
	$self->wait_until_up;
	return $self;
}

sub wait_until_up
{
	my ($self) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	until (eval { $self->command('PING') eq 'PONG' })
	{
		last if $@ =~ /NOAUTH|WRONGPASS|NOPERM/;
		die "Redis does not start: $@" . $self->log if time > $deadline;
		usleep(10_000);
	}
	return;
}

sub log
{
	my ($self) = @_;
	return PostgreSQL::Test::Utils::slurp_file("$self->{folder}/redis.log");
}

# Ends the server by a signal and waits until it is gone.
sub end_by
{
	my ($self, $signal) = @_;

	return unless $self->{pid};
	kill $signal, $self->{pid};
	kill 'CONT', $self->{pid};
	waitpid $self->{pid}, 0;
	delete $self->{pid};
	$self->{paused} = 0;
	unlink $self->{socket};
	return;
}

sub stop { $_[0]->end_by('TERM'); return; }
sub kill9 { $_[0]->end_by('KILL'); return; }

sub restart
{
	my ($self) = @_;
	$self->stop;
	return $self->start;
}

# The server hangs: it accepts connections, and does not answer.
sub pause { my ($self) = @_; kill 'STOP', $self->{pid}; $self->{paused} = 1; return; }
sub resume { my ($self) = @_; kill 'CONT', $self->{pid}; $self->{paused} = 0; return; }

# Check whether it can answer.
sub is_up { my ($self) = @_; return $self->{pid} && !$self->{paused}; }

# Copies the data of a stopped server aside, and back.
sub save_data
{
	my ($self) = @_;
	File::Path::rmtree("$self->{folder}/saved");
	PostgreSQL::Test::RecursiveCopy::copypath("$self->{folder}/data", "$self->{folder}/saved");
	return;
}

sub restore_data
{
	my ($self) = @_;
	File::Path::rmtree("$self->{folder}/data");
	PostgreSQL::Test::RecursiveCopy::copypath("$self->{folder}/saved", "$self->{folder}/data");
	return;
}

sub lose_data
{
	my ($self) = @_;
	File::Path::rmtree("$self->{folder}/data");
	mkdir "$self->{folder}/data";
	return;
}

# All keys are lost, and not who the node is in its cluster.
sub lose_keys
{
	my ($self) = @_;
	File::Path::rmtree("$self->{folder}/data/appendonlydir");
	unlink glob "$self->{folder}/data/*.rdb";
	return;
}

# Sends one command and returns its reply: a string, undef, or a list of these. Dies with
# the text of an error. A node of a cluster that was stalled takes the cluster for failed until
# it has heard of the others: then it has done nothing, and is asked again.
sub command
{
	my ($self, @words) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	for (;;)
	{
		my $reply = eval { $self->send_command(@words) };
		return $reply if $@ eq '';
		die $@ if !$self->{is_node} || $@ !~ /^CLUSTERDOWN The cluster is down/ || time > $deadline;
		usleep(50_000);
	}
	return;
}

sub send_command
{
	my ($self, @words) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $self->{socket})
	  or die "could not connect to Redis: $!\n";
	my $reply;

	binmode $socket;
	foreach my $command ($self->{login} ? [ 'AUTH', @{ $self->{login} } ] : (), \@words)
	{
		print {$socket} '*' . @$command . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @$command;
		$socket->flush;
		$reply = read_reply($socket);
	}
	return $reply;
}

sub read_reply
{
	my ($socket) = @_;
	my $line = do { local $/ = "\r\n"; <$socket> };

	defined $line or die "Redis closed the connection\n";
	my ($kind, $value) = $line =~ /^(.)(.*)\r\n$/s;
	return $value if $kind eq '+' or $kind eq ':';
	die "$value\n" if $kind eq '-';
	return undef if $value < 0;
	return [ map { read_reply($socket) } 1 .. $value ] if $kind eq '*';

	my $bytes = '';
	my $wanted = $value + 2;
	while (length($bytes) < $wanted)
	{
		read($socket, $bytes, $wanted - length($bytes), length($bytes))
		  or die "Redis closed the connection\n";
	}
	return substr($bytes, 0, $value);
}

# A string takes the place of each of these streams, which are kept aside: what is added
# to them is refused.
sub refuse
{
	my ($self, @streams) = @_;
	$self->command('EVAL', <<'END', scalar @streams, @streams);
for _, stream in ipairs(KEYS) do
  local type = redis.call('TYPE', stream).ok
  if type == 'stream' then redis.call('RENAME', stream, '{' .. stream .. '} aside') end
  if type ~= 'string' then redis.call('SET', stream, 'not a stream') end
end
END
	return;
}

# The streams are back in their places.
sub accept
{
	my ($self, @streams) = @_;
	$self->command('EVAL', <<'END', scalar @streams, @streams);
for _, stream in ipairs(KEYS) do
  if redis.call('TYPE', stream).ok == 'string' then
    redis.call('DEL', stream)
    local aside = '{' .. stream .. '} aside'
    if redis.call('EXISTS', aside) == 1 then redis.call('RENAME', aside, stream) end
  end
end
END
	return;
}

# The name of the key of the fence, or of the lease, where there is only one.
sub key
{
	my ($self, $kind) = @_;
	return $self->command('KEYS', "outbox:$kind:*")->[0];
}

# Runs redis-cli, as a user would.
sub cli
{
	my ($self, @words) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'redis-cli', '-s', $self->{socket}, @words ], '<', \undef, '>', \$out, '2>', \$err)
	  or die "redis-cli @words: $err$out";
	chomp $out;
	return $out;
}

# The same in the background; returns the IPC::Run handle.
sub start_cli
{
	my ($self, @words) = @_;
	my $out = '';
	return IPC::Run::start([ 'redis-cli', '-s', $self->{socket}, @words ], '<', \undef, '>', \$out, '2>', \$out);
}

# How many entries a stream has; 0 without Redis, so that it can be polled.
sub count
{
	my ($self, $stream) = @_;
	return eval { $self->command('XLEN', $stream) } // 0;
}

# How many ids it has as a deduplication store.
sub count_ids
{
	my ($self) = @_;
	return $self->command('EVAL', q{return #redis.call('KEYS', 'outbox:dedup:*')}, 0);
}

# The id of the newest connection that a user has.
sub newest_connection_of
{
	my ($self, $user) = @_;
	return (sort { $b <=> $a } map { / user=\Q$user\E / && /^id=(\d+)/ ? $1 : () } split /\n/, $self->command('CLIENT', 'LIST'))[0];
}

# The entries of a stream, each as {entry, id, time, body, cause, headers =>
# {...}, fields => [names as they came]}.
sub entries
{
	my ($self, $stream) = @_;
	return map { entry(@$_) } @{ $self->command('XRANGE', $stream, '-', '+') };
}

sub entry
{
	my ($number, $pairs) = @_;
	my %entry = (entry => $number, fields => [], headers => {});

	for (my $i = 0; $i < @$pairs; $i += 2)
	{
		my ($name, $value) = @$pairs[ $i, $i + 1 ];
		push @{ $entry{fields} }, $name;
		if ($name =~ /^(id|time|body|cause)$/) { $entry{$name} = $value; }
		else { $entry{headers}{$name} = $value; }
	}
	return \%entry;
}

# The bodies alone, which Redis picks out faster than Perl reads all fields.
sub bodies
{
	my ($self, $stream) = @_;
	return @{ $self->command('EVAL', <<'END', 1, $stream) };
local bodies = {}
for i, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  local fields = entry[2]
  bodies[i] = false
  for j = 1, #fields, 2 do
    if fields[j] == 'body' then bodies[i] = fields[j + 1] end
  end
end
return bodies
END
}

# The same as one string, with spaces between.
sub sequence
{
	my ($self, $stream) = @_;
	return join ' ', $self->bodies($stream);
}

END
{
	my $exit_code = $?;
	if ($$ == $owner)
	{
		$_->kill9 foreach @servers;
	}
	$? = $exit_code;
}

1;
