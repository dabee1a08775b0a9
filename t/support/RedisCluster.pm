# A real Redis Cluster on loopback ports: masters, each with a replica, and the slots in equal
# parts.

package RedisCluster;

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils ();
use Redis;
use Time::HiRes qw(time usleep);

my $SLOTS = 16384;

# Starts a cluster. Options: masters => 3, replicas => 1 (of each, 0 or 1), config => ['--name', 'value', ...].
sub new
{
	my ($class, %option) = @_;
	my $masters = $option{masters} // 3;
	my $nodes = $masters * (1 + ($option{replicas} // 1));
	my @config = (
		'--cluster-enabled', 'yes', '--cluster-node-timeout', '1000', '--cluster-require-full-coverage', 'no',
		'--cluster-replica-validity-factor', '0', '--repl-diskless-sync-delay', '0', @{ $option{config} // [] });
	my $self = bless { masters => $masters, nodes => [ map { Redis->new(tcp => 1, config => \@config) } 1 .. $nodes ] }, $class;
	my @first = map { int($SLOTS * $_ / $masters) } 0 .. $masters;

	for my $n (0 .. $nodes - 1)
	{
		$self->node($n)->command('CLUSTER', 'SET-CONFIG-EPOCH', $n + 1);
		$self->node($n)->command('CLUSTER', 'ADDSLOTS', $first[$n] .. $first[ $n + 1 ] - 1) if $n < $masters;
		$self->node($n)->command('CLUSTER', 'MEET', '127.0.0.1', $self->node(0)->port) if $n > 0;
	}
	$self->wait_for(sub { @{ [ $self->lines($_[0]) ] } == $nodes }, 'the nodes meet');
	$self->node($_)->command('CLUSTER', 'REPLICATE', $self->id($_ - $masters)) foreach $masters .. $nodes - 1;
	$self->wait_until_ok;
	return $self;
}

# All nodes take the cluster for whole, and each replica has the data of its master.
sub wait_until_ok
{
	my ($self) = @_;
	my $masters = $self->{masters};

	$self->wait_for(
		sub {
			my ($node) = @_;
			return $node->command('CLUSTER', 'INFO') =~ /cluster_state:ok/ &&
			  $node->command('INFO', 'replication') !~ /master_link_status:down/ &&
			  !(grep { /handshake|fail/ } $self->lines($node));
		},
		'the cluster is whole');
	return;
}

sub node { return $_[0]->{nodes}[ $_[1] ]; }
sub nodes { return @{ $_[0]->{nodes} }; }

# The lines of CLUSTER NODES as a node tells them.
sub lines
{
	my ($self, $node) = @_;
	return split /\n/, $node->command('CLUSTER', 'NODES');
}

# The id of a node.
sub id { return $_[0]->node($_[1])->command('CLUSTER', 'MYID'); }

# The URL of all nodes.
sub url
{
	my ($self) = @_;
	return 'redis+cluster://' . join ',', map { '127.0.0.1:' . $_->port } $self->nodes;
}

# The node that serves a key, as the first node that runs tells.
sub node_of
{
	my ($self, $key) = @_;
	my ($teller) = grep { $_->{pid} } $self->nodes;
	my $slot = $teller->command('CLUSTER', 'KEYSLOT', $key);

	foreach my $range (@{ $teller->command('CLUSTER', 'SLOTS') })
	{
		my ($from, $to, $master) = @$range;
		next if $slot < $from || $slot > $to;
		return (grep { $_->port == $master->[1] } $self->nodes)[0];
	}
	die "no node serves $key\n";
}

# Moves a slot to another node, as redis-cli does; with stop_after => n only its first n keys.
sub move_slot
{
	my ($self, $slot, $from, $to, %option) = @_;
	my ($source, $target) = ($self->node($from), $self->node($to));
	my $moved = 0;

	$target->command('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $self->id($from));
	$source->command('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', $self->id($to));
	while (my @keys = @{ $source->command('CLUSTER', 'GETKEYSINSLOT', $slot, 1) })
	{
		return if defined $option{stop_after} && $moved >= $option{stop_after};
		$source->command('MIGRATE', '127.0.0.1', $target->port, '', 0, 5000, 'KEYS', @keys);
		$moved += @keys;
	}
	return if defined $option{stop_after};
	$_->command('CLUSTER', 'SETSLOT', $slot, 'NODE', $self->id($to)) foreach $target, $source;
	return;
}

# Waits until the code returns true for each node that runs.
sub wait_for
{
	my ($self, $code, $what) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	foreach my $node (grep { $_->{pid} } $self->nodes)
	{
		until (eval { $code->($node) })
		{
			die "it does not come true that $what\n" . $node->log if time > $deadline;
			usleep(20_000);
		}
	}
	return;
}

1;
