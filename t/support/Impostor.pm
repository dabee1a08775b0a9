# A server that speaks the protocol of Redis and misbehaves. It is a process of its own,
# with one more for each connection. The user name with which the client logs in, or else
# "plain", selects what it does: see serve().

package Impostor;

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use Redis;
use Time::HiRes qw(usleep);

my @impostors;
my $owner = $$;

# $behaviours: name => code that is called with a connection and the words of a
# command, and returns the reply as bytes; undef is the reply of an honest
# server that is empty. It may write by itself and return ''.
sub new
{
	my ($class, %behaviours) = @_;
	return $class->talk(sub { serve($_[0], \%behaviours) });
}

# A server of any protocol: the code is called with each connection.
sub talk
{
	my ($class, $code) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 50, ReuseAddr => 1)
	  or die "could not listen on port $port: $!";

	defined(my $pid = fork) or die "could not fork: $!";
	if ($pid == 0)
	{
		setpgrp;
		$SIG{TERM} = $SIG{INT} = 'DEFAULT';
		$SIG{CHLD} = 'IGNORE';
		$SIG{PIPE} = 'IGNORE';

		# A test that is killed does not end this process, and who reads its output waits for all that have the pipe.
		open STDOUT, '>', '/dev/null';
		my $select = IO::Select->new($listener);
		while (getppid == $owner)
		{
			my $client = $select->can_read(1) && $listener->accept or next;
			next if fork;
			eval { $code->($client) };
			POSIX::_exit(0);
		}
		POSIX::_exit(0);
	}
	my $self = bless { port => $port, pid => $pid }, $class;
	push @impostors, $self;
	return $self;
}

sub port { return $_[0]->{port}; }
sub url { my ($self, $behaviour) = @_; return "redis://$behaviour:x\@127.0.0.1:$self->{port}"; }

sub serve
{
	my ($client, $behaviours) = @_;
	my $behaviour = 'plain';

	binmode $client;
	$client->autoflush(1);
	while (1)
	{
		my $words = Redis::read_reply($client);
		my $reply;
		($behaviour, $reply) = ($words->[1], "+OK\r\n") if $words->[0] eq 'AUTH';
		$reply //= $behaviours->{$behaviour}->($client, @$words) if $behaviours->{$behaviour};
		print {$client} $reply // honest(@$words);
	}
	return;
}

sub bulk { my ($bytes) = @_; return '$' . length($bytes) . "\r\n$bytes\r\n"; }

# What a Redis answers that has nothing, and never keeps anything.
sub honest
{
	my ($command, @words) = @_;

	return bulk("redis_version:7.0.0\r\nmaxmemory:0\r\n") if $command eq 'INFO';
	return bulk('0' x 40) if $command eq 'SCRIPT';
	return "\$-1\r\n" if $command eq 'GET';
	return "*1\r\n" . bulk('master') if $command eq 'ROLE';
	return "*3\r\n:" . messages(@words) . "\r\n\$-1\r\n*0\r\n" if $command eq 'EVALSHA';
	return ":0\r\n" if $command eq 'EXISTS';
	return bulk('1-1') if $command eq 'XADD';
	return "+OK\r\n";
}

# How many messages the arguments of a batch hold; publish.lua says what they are.
sub messages
{
	my (@words) = @_;
	my ($at, $messages, $fields) = (7, 0, 0);

	while ($at < @words - 2)
	{
		my ($count, $stream, $described) = @words[ $at .. $at + 2 ];
		$fields = $described || $fields;
		$messages += $count;
		$at += 3 + ($described ? 1 + $described : 0) + $count * $fields;
	}
	return $messages;
}

END
{
	my $exit_code = $?;
	if ($$ == $owner)
	{
		foreach my $impostor (@impostors)
		{
			kill 'KILL', -$impostor->{pid};
			waitpid $impostor->{pid}, 0;
		}
	}
	$? = $exit_code;
}

1;
