# A TCP proxy in front of a server (anything that has socket(): a Redis, or an Outbox) that
# delivers late, loses an answer or cuts a connection, as a network may do. It is a process
# of its own.
#
# What it does begins with the first packet that contains a given text; packets
# and connections without it pass untouched. Connections are numbered from 1.

package Proxy;

use strict;
use warnings FATAL => 'all';

use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Cluster;
use Socket;
use Time::HiRes qw(time);

my @proxies;
my $owner = $$;

sub new
{
	my ($class, $server) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 10, ReuseAddr => 1)
	  or die "could not listen on port $port: $!";

	socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
	defined(my $pid = fork) or die "could not fork: $!";
	if ($pid == 0)
	{
		$SIG{TERM} = $SIG{INT} = 'DEFAULT';
		close $ours;
		eval { serve($listener, $theirs, $server->socket); 1 } or print STDERR "proxy: $@";
		POSIX::_exit(0);
	}
	close $theirs;
	$ours->autoflush(1);
	my $self = bless { port => $port, pid => $pid, control => $ours }, $class;
	push @proxies, $self;
	return $self;
}

sub port { return $_[0]->{port}; }
sub url { return "redis://127.0.0.1:$_[0]->{port}"; }

# Holds back what a connection sends, from the packet with $text on, also after the client
# has closed it.
sub hold { my ($self, $text) = @_; return $self->order("hold $text"); }

# Delivers the packet with $text, then closes the client's connection: the
# answer never arrives.
sub lose_answer { my ($self, $text) = @_; return $self->order("lose $text"); }

# Delivers the first half of the packet with $text and closes both sides.
sub cut { my ($self, $text) = @_; return $self->order("cut $text"); }

# Does the latter so many times, and then the former.
sub cut_then_lose { my ($self, $text, $cuts) = @_; return $self->order("cut_then_lose $cuts $text"); }

# Delivers each packet of a client as many milliseconds late.
sub delay { my ($self, $ms) = @_; return $self->order("delay $ms"); }

# How many runs of the script were on their way at once, at most, since this was asked last.
sub most_under_way { return $_[0]->order('most'); }

# Lets packets pass unchanged from now on; what is held stays held.
sub pass { my ($self) = @_; return $self->order('pass'); }

# Delivers what a connection has held back.
sub release { my ($self, $number) = @_; return $self->order("release $number"); }

# How many connections were opened, how many hold bytes, how many were lost or cut.
sub opened { return $_[0]->order('opened'); }
sub held { return $_[0]->order('held'); }
sub harmed { return $_[0]->order('harmed'); }

# How many bytes the server answered to what was held back and then released.
sub answered { my ($self, $number) = @_; return $self->order("answered $number"); }

sub order
{
	my ($self, $line) = @_;
	my $control = $self->{control};

	print {$control} "$line\n";
	my $answer = <$control> // die 'the proxy is gone';
	chomp $answer;
	return $answer;
}

# From here on, code of the proxy's own process.

my ($select, %side, @connections, $trick, $text, $cuts, $harmed);
my ($most, @delayed) = (0);

sub serve
{
	my ($listener, $control, $redis) = @_;

	($select, $trick, $text, $cuts, $harmed) = (IO::Select->new($listener, $control), 'pass', '', 0, 0);
	$control->autoflush(1);
	while (1)
	{
		my $wait = @delayed ? $delayed[0]{due} - time : undef;

		foreach my $handle ($select->can_read(defined $wait && $wait < 0 ? 0 : $wait))
		{
			if ($handle == $listener) { connect_through(scalar $listener->accept, $redis); }
			elsif ($handle == $control) { obey($control) or return; }
			elsif ($side{$handle}) { forward($handle); }
		}
		deliver_delayed();
	}
}

sub connect_through
{
	my ($client, $redis) = @_;
	my $server = IO::Socket::UNIX->new(Peer => $redis);

	return close $client unless $server;
	my $connection = { client => $client, server => $server, held => '', holds => 0, answered => 0 };
	push @connections, $connection;
	$side{$client} = [ $connection, 'client' ];
	$side{$server} = [ $connection, 'server' ];
	$select->add($client, $server);
	return;
}

sub obey
{
	my ($control) = @_;
	sysread($control, my $line, 4096) or return 0;
	my ($verb, $rest) = $line =~ /^(\w+) ?(.*)\n$/;
	my $connection = $rest =~ /^[1-9]\d*$/ ? $connections[ $rest - 1 ] : undef;
	my $answer = 'ok';

	if ($verb eq 'release') { release_held($connection); }
	elsif ($verb eq 'answered') { $answer = $connection->{answered}; }
	elsif ($verb eq 'opened') { $answer = @connections; }
	elsif ($verb eq 'held') { $answer = grep { $_->{held} ne '' } @connections; }
	elsif ($verb eq 'harmed') { $answer = $harmed; }
	elsif ($verb eq 'most') { ($answer, $most) = ($most, 0); }
	elsif ($verb eq 'cut_then_lose') { ($trick, $cuts, $text) = ('cut', split / /, $rest, 2); }
	else { ($trick, $cuts, $text) = ($verb, 0, $rest); }
	print {$control} "$answer\n";
	return 1;
}

sub forward
{
	my ($handle) = @_;
	my ($connection, $from) = @{ $side{$handle} };
	my $open = sysread($handle, my $bytes, 1 << 20);

	if (!$open) { hang_up($connection, $from); }
	elsif ($from eq 'server') { answer($connection, $bytes); }
	elsif ($connection->{holds}) { $connection->{held} .= $bytes; }
	elsif ($trick eq 'delay') { delay_packet($connection, $bytes); }
	elsif ($trick ne 'pass' and index($bytes, $text) >= 0) { harm($connection, $bytes); }
	else { deliver($connection->{server}, $bytes); }
	return;
}

sub harm
{
	my ($connection, $bytes) = @_;

	$harmed++;
	if ($trick eq 'hold')
	{
		$connection->{holds} = 1;
		$connection->{held} = $bytes;
		return;
	}
	deliver($connection->{server}, $trick eq 'cut' ? substr($bytes, 0, length($bytes) / 2) : $bytes);
	drop($connection, 'client');
	drop($connection, 'server') if $trick eq 'cut';
	$trick = 'lose' if $cuts > 0 and --$cuts == 0;
	return;
}

sub delay_packet
{
	my ($connection, $bytes) = @_;
	my $runs = 0;

	push @delayed, { due => time + $text / 1000, connection => $connection, bytes => $bytes };
	$runs += () = $_->{bytes} =~ /EVALSHA/g foreach @delayed;
	$most = $runs if $runs > $most;
	return;
}

sub deliver_delayed
{
	while (@delayed and $delayed[0]{due} <= time)
	{
		my $packet = shift @delayed;
		deliver($packet->{connection}{server}, $packet->{bytes});
	}
	return;
}

sub answer
{
	my ($connection, $bytes) = @_;

	$connection->{answered} += length $bytes if $connection->{released};
	return drop($connection, 'server') unless $connection->{client} or $connection->{released};
	deliver($connection->{client}, $bytes);
	return;
}

sub release_held
{
	my ($connection) = @_;

	$connection->{released} = 1;
	$connection->{holds} = 0;
	deliver($connection->{server}, $connection->{held});
	$connection->{held} = '';
	return;
}

# One side has hung up; the other one is closed, too, unless something is still held.
sub hang_up
{
	my ($connection, $from) = @_;

	drop($connection, $from);
	drop($connection, $from eq 'server' ? 'client' : 'server')
	  unless $connection->{holds} or $connection->{released};
	return;
}

sub drop
{
	my ($connection, $name) = @_;
	my $handle = delete $connection->{$name} or return;

	$select->remove($handle);
	delete $side{$handle};
	close $handle;
	return;
}

sub deliver
{
	my ($handle, $bytes) = @_;

	while ($handle and length $bytes)
	{
		my $written = syswrite($handle, $bytes) or return;
		substr($bytes, 0, $written, '');
	}
	return;
}

END
{
	my $exit_code = $?;
	if ($$ == $owner)
	{
		foreach my $proxy (@proxies)
		{
			kill 'KILL', $proxy->{pid};
			waitpid $proxy->{pid}, 0;
		}
	}
	$? = $exit_code;
}

1;
