# A connection to PostgreSQL over its socket, for SQL that needs nothing of psql, whose start takes
# more time than most of what the tests ask; they ask some ten thousand times. What is
# printed, and the errors, are those of psql -XAtq, but for the lines that point into the SQL.

package Connection;

use strict;
use warnings FATAL => 'all';

use IO::Socket::UNIX;

# What the errors of psql begin with.
my $where = 'psql:<stdin>:1: ';

# Returns the statements of SQL; nothing if only psql can tell, or run them.
sub statements
{
	my ($sql) = @_;
	my @statements;

	return if $sql =~ /\\|\b(?:COPY|LISTEN|ATOMIC)\b/i or grep { /^PG/ && !/^PG(?:HOST|PORT|APPNAME|DATABASE|CTLTIMEOUT|_.*)$/ } keys %ENV;
	push @statements, $1
	  while $sql =~ /\G((?:[^;'"\$\/-]|'[^']*'|"[^"]*"|-(?!-)|\/(?!\*)|(?<tag>\$\w*\$).*?\k<tag>|\$(?!\w*\$))++)(?:;|\z)/gcs;
	return unless $sql =~ /\G\s*\z/;
	return grep { /\S/ } @statements;
}

# Connects to a database; returns undef if that fails, or takes a password.
sub new
{
	my ($class, $socket, $database) = @_;
	my $self = bless { socket => IO::Socket::UNIX->new(Peer => $socket) // return, out => '', error => '', status => 0 }, $class;
	my %parameter = (user => scalar getpwuid $>, database => $database, application_name => $ENV{PGAPPNAME} // 'psql');

	binmode $self->{socket};
	$self->send('', pack('N', 3 << 16) . pack('(Z*)*', %parameter) . "\0");
	return $self->read_until_ready && !$self->{status} ? $self : undef;
}

# Has errors tell their SQLSTATE, as VERBOSITY does in psql.
sub be_verbose
{
	my ($self) = @_;
	$self->{verbose} = 1;
	return;
}

# Runs statements up to the first that fails, and disconnects. Returns what psql would: its exit
# code, what it prints, and the errors.
sub run
{
	my ($self, @statements) = @_;

	foreach my $statement (@statements)
	{
		$self->send('Q', "$statement\0");
		last unless $self->read_until_ready && !$self->{status};
	}
	$self->send('X', '');
	close $self->{socket};
	return @$self{ 'status', 'out', 'error' };
}

sub send
{
	my ($self, $type, $message) = @_;
	local $SIG{PIPE} = 'IGNORE';

	print { $self->{socket} } $type, pack('N', 4 + length $message), $message;
	$self->{socket}->flush;
	return;
}

# Reads the answer to what was sent; returns false if there is none, as psql does.
sub read_until_ready
{
	my ($self) = @_;

	while (defined(my $type = $self->read_bytes(1)))
	{
		my $message = $self->read_bytes(unpack('N', $self->read_bytes(4) // last) - 4) // last;

		return 1 if $type eq 'Z';
		last if $type eq 'R' and $message ne "\0\0\0\0";
		$self->{out} .= row($message) if $type eq 'D';
		$self->{error} .= $self->report($type, $message) if $type eq 'E' or $type eq 'N';
		$self->{status} = 3 if $type eq 'E';
	}
	$self->{status} = 2;
	$self->{error} .= $where . "error: connection to server was lost\n";
	return 0;
}

sub read_bytes
{
	my ($self, $wanted) = @_;
	my $bytes = '';

	return '' if $wanted == 0;
	return (read($self->{socket}, $bytes, $wanted) // 0) == $wanted ? $bytes : undef;
}

sub row
{
	my ($message) = @_;
	my ($columns, $rest) = unpack 'n a*', $message;
	my @values;

	foreach (1 .. $columns)
	{
		(my $length, $rest) = unpack 'l> a*', $rest;
		push @values, $length < 0 ? '' : substr $rest, 0, $length, '';
	}
	return join('|', @values) . "\n";
}

sub report
{
	my ($self, $type, $message) = @_;
	my %field = map { /^(.)(.*)$/s } split /\0/, $message;
	my $report = "$where$field{S}:  " . ($self->{verbose} ? "$field{C}: " : '') . "$field{M}\n";

	$report .= "DETAIL:  $field{D}\n" if defined $field{D};
	$report .= "HINT:  $field{H}\n" if defined $field{H};
	$report .= "CONTEXT:  $field{W}\n" if defined $field{W} and $type eq 'E';
	return $report;
}

1;
