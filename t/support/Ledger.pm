# What was committed, for each stream, and how it compares with what is in Redis: nothing is
# lost, nothing is there twice or on two nodes, and the messages of one client are in order.

package Ledger;

use strict;
use warnings FATAL => 'all';

use Outbox;
use Test::More;

# $redis is a Redis or a RedisCluster.
sub new
{
	my ($class, $node, $redis, @streams) = @_;

	$node->sql(<<'END');
CREATE SEQUENCE posted;
CREATE TABLE ledger (stream text, body text);
CREATE FUNCTION post(stream text, client int DEFAULT 9) RETURNS void LANGUAGE sql AS $$
WITH body (text) AS (SELECT client || ' ' || nextval('posted')), entry AS (INSERT INTO ledger SELECT stream, text FROM body)
SELECT outbox_enqueue(stream, text) FROM body;
$$;
END
	return bless { node => $node, redis => $redis, streams => \@streams }, $class;
}

# The streams that messages for a destination may be in, if it has others than its own name.
sub spread { my ($self, $dest, @streams) = @_; $self->{spread}{$dest} = \@streams; return; }

# Another stream, which is new; returns it.
sub add { my ($self, $stream) = @_; push @{ $self->{streams} }, $stream; return $stream; }

sub streams { return @{ $_[0]->{streams} }; }

# One message to each of these streams, or to all, in one transaction.
sub post
{
	my ($self, @streams) = @_;
	$self->{node}->sql('SELECT post(s) FROM unnest(' . array(@streams ? @streams : $self->streams) . ') s');
	return;
}

sub array { return 'ARRAY[' . join(',', map { "'$_'" } @_) . ']'; }

# Three clients that post messages to some of these streams (of all, if none is given) at
# random, so many transactions a second, until they are stopped.
sub start_load
{
	my ($self, $rate, @streams) = @_;
	my @of = @streams ? @streams : $self->streams;
	my $array = '(' . array(@of) . ')';

	return $self->{node}->start_load(clients => 3, rate => $rate, scripts => [<<"END"]);
\\set a random(1, @{[ scalar @of ]})
\\set b random(1, @{[ scalar @of ]})
BEGIN;
SELECT post($array\[:a], :client_id);
SELECT post($array\[:b], :client_id);
COMMIT;
END
}

# How many messages are in Redis.
sub arrived
{
	my ($self) = @_;
	my $n = 0;
	$n += $self->{redis}->count($_) foreach map { @{ $self->{spread}{$_} // [$_] } } $self->streams;
	return $n;
}

# Tests that the books agree when all is sent.
sub agrees
{
	my ($self, $name) = @_;
	my ($node, $redis) = @$self{ 'node', 'redis' };
	my (%ledger, @faults);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until { $node->status('pending = 0 AND deferred = 0') eq 't' }
	  or return ok(0, "$name: all is sent");
	wait_until { $self->arrived >= $node->sql('SELECT count(*) FROM ledger') };
	foreach (split /\n/, $node->sql('SELECT stream, body FROM ledger'))
	{
		my ($stream, $body) = split /[|]/;
		$ledger{$stream}{$body} = 0;
	}
	push @faults, $self->faults($_, $ledger{$_} // {}) foreach $self->streams;
	return ok(!@faults, $name) || diag join "\n", @faults[ 0 .. ($#faults > 9 ? 9 : $#faults) ];
}

# What is wrong with the messages for a destination.
sub faults
{
	my ($self, $dest, $committed) = @_;
	my @faults = map { $self->faults_of_stream($_, $committed) } @{ $self->{spread}{$dest} // [$dest] };

	return @faults, map { "$dest: $_ is lost" } grep { !$committed->{$_} } sort keys %$committed;
}

sub faults_of_stream
{
	my ($self, $stream, $committed) = @_;
	my $redis = $self->{redis};
	my (@faults, %last);

	my @places = $redis->can('places_of') ? $redis->places_of($stream) : ();
	push @faults, "$stream is on nodes @places" if @places > 1;
	foreach my $body ($redis->bodies($stream))
	{
		my ($client, $number) = split / /, $body;

		push @faults, "$stream: $body is not committed" unless exists $committed->{$body};
		push @faults, "$stream: $body is there twice" if $committed->{$body}++;
		push @faults, "$stream: $body comes too late" if $number < ($last{$client} // 0);
		$last{$client} = $number;
	}
	return @faults;
}

1;
