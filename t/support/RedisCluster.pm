# A real Redis Cluster on loopback ports: masters, each with a replica, and the slots in equal
# parts; and what happens to clusters. Nodes are named by their numbers, streams are found
# wherever they are.

package RedisCluster;

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PostgreSQL::Test::Cluster ();
use PostgreSQL::Test::Utils ();
use Redis;
use Time::HiRes qw(time usleep);

my $SLOTS = 16384;

# Starts a cluster. A replica takes the place of its master when it is told to, and not by itself:
# one that is stalled on a busy machine stays what it is. Nor do the nodes take one that is stalled
# for one that has failed, unless that is wanted. Options: masters => 3,
# replicas => 1 (of each, 0 or 1), tls => what Redis->new takes, fails_after => 3000 (ms, after which a
# node that does not answer has failed; for elections, in which no master votes twice within twice
# that time), config => ['--name', 'value', ...], dealt => 1 (each master has every third slot).
sub new
{
	my ($class, %option) = @_;
	my $masters = $option{masters} // 3;
	my $nodes = $masters * (1 + ($option{replicas} // 1));
	my @config = (
		'--cluster-enabled', 'yes', '--cluster-node-timeout', $option{fails_after} // 600_000, '--cluster-require-full-coverage', 'no',
		'--cluster-replica-validity-factor', '0', '--cluster-replica-no-failover', 'yes', '--repl-diskless-sync-delay', '0', @{ $option{config} // [] });
	push @config, '--tls-cluster', 'yes' if $option{tls};
	my $self = bless { masters => $masters, fails_after => ($option{fails_after} // 600_000) / 1000, elected => {}, nodes => [], bus_ports => [ map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. $nodes ] }, $class;
	my @first = map { int($SLOTS * $_ / $masters) } 0 .. $masters;

	# The port that a node has by itself, greater by 10,000, is one of those that connections get.
	push @{ $self->{nodes} }, Redis->new(tcp => 1, tls => $option{tls}, config => [ @config, '--cluster-port', $_ ]) foreach @{ $self->{bus_ports} };
	$_->{is_node} = 1 foreach $self->nodes;

	for my $n (0 .. $nodes - 1)
	{
		$self->node($n)->command('CLUSTER', 'SET-CONFIG-EPOCH', $n + 1);
		$self->node($n)->command('CLUSTER', 'ADDSLOTS', $option{dealt} ? grep { $_ % $masters == $n } 0 .. $SLOTS - 1 : $first[$n] .. $first[ $n + 1 ] - 1) if $n < $masters;
	}
	my $next = 0;
	$self->wait_for(
		sub {
			my ($node) = @_;
			my @met = grep { !/handshake/ } $self->lines($node);

			return 1 if @met == $nodes;
			$self->introduce($node, $option{tls} ? 'tls_port' : 'port') if time > $next;
			$next = time + 2 if time > $next;
			return 0;
		},
		'the nodes meet');
	$self->node($_)->command('CLUSTER', 'REPLICATE', $self->id($_ - $masters)) foreach $masters .. $nodes - 1;
	$self->wait_until_ok;
	return $self;
}

# Has a node meet those that it does not list. A node that answers later than after the
# node timeout is forgotten again, so on a busy machine once may not be enough.
sub introduce
{
	my ($self, $node, $port) = @_;
	my @lines = $self->lines($node);

	foreach my $n (0 .. $#{ $self->{nodes} })
	{
		my $number = $self->node($n)->$port;
		$node->command('CLUSTER', 'MEET', '127.0.0.1', $number, $self->{bus_ports}[$n]) unless grep { /:$number@/ } @lines;
	}
	return;
}

# All nodes take the cluster for whole, and each replica has the data of its master.
sub wait_until_ok
{
	my ($self) = @_;

	$self->wait_for(
		sub {
			my ($node) = @_;
			my $info = $node->command('CLUSTER', 'INFO');
			my ($assigned) = $info =~ /cluster_slots_assigned:(\d+)/;
			my @lines = $self->lines($node);

			# A node that is taking a slot knows nobody who serves it once its owner has failed over.
			my $taking = () = join('', grep { /myself/ } @lines) =~ /\[\d+-<-/g;

			# It is ok before it knows who serves all slots, as none need be served.
			return $info =~ /cluster_state:ok/ && $assigned + $taking >= $SLOTS &&
			  $node->command('INFO', 'replication') !~ /master_link_status:down/ &&
			  !(grep { /handshake|\bfail\b/ } @lines);
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

# The nodes that can answer, by their numbers.
sub up { my ($self) = @_; return grep { $self->node($_)->is_up } 0 .. $#{ $self->{nodes} }; }

# What one of these tells of the others.
sub ask { my ($self, @words) = @_; return $self->node(($self->up)[0])->command(@words); }

sub slot_of { my ($self, $key) = @_; return $self->ask('CLUSTER', 'KEYSLOT', $key); }

# The number of the node that serves a key.
sub index_of
{
	my ($self, $key) = @_;
	my $slot = $self->slot_of($key);

	foreach my $range (@{ $self->ask('CLUSTER', 'SLOTS') })
	{
		my ($from, $to, $master) = @$range;
		next if $slot < $from || $slot > $to;
		return (grep { $self->node($_)->port == $master->[1] } 0 .. $#{ $self->{nodes} })[0];
	}
	die "no node serves $key\n";
}

# The node itself, and what Redis.pm can do with a stream.
sub node_of { my ($self, $key) = @_; return $self->node($self->index_of($key)); }
sub count { my ($self, $stream) = @_; return eval { $self->node_of($stream)->command('XLEN', $stream) } // 0; }
sub entries { my ($self, $stream) = @_; return $self->node_of($stream)->entries($stream); }
sub bodies { my ($self, $stream) = @_; return $self->node_of($stream)->bodies($stream); }
sub sequence { my ($self, $stream) = @_; return $self->node_of($stream)->sequence($stream); }
sub refuse { my ($self, @streams) = @_; $self->node_of($_)->refuse($_) foreach @streams; return; }
sub accept { my ($self, @streams) = @_; $self->node_of($_)->accept($_) foreach @streams; return; }

# From now on the ACL forbids this stream and no other; and none any more. A name has letters only.
sub forbid
{
	my ($self, $stream) = @_;
	my @others = "$stream?*";

	foreach my $n (0 .. length($stream) - 1)
	{
		my $start = substr $stream, 0, $n;
		push @others, $start if $n > 0;
		push @others, $start . '[^' . substr($stream, $n, 1) . ']*';
	}
	$self->node($_)->command('ACL', 'SETUSER', 'default', 'resetkeys', map { "~$_" } @others) foreach $self->up;
	return;
}

sub forbid_none { my ($self) = @_; $self->node($_)->command('ACL', 'SETUSER', 'default', 'allkeys') foreach $self->up; return; }

# The numbers of the masters that have a key, whether they serve it or not.
sub places_of
{
	my ($self, $key) = @_;
	my $pattern = $key =~ s/([][*?\\])/\\$1/gr;
	return grep { $self->is_master($_) && @{ $self->node($_)->command('KEYS', $pattern) } } $self->up;
}

sub is_master { my ($self, $n) = @_; return $self->node($n)->command('ROLE')->[0] eq 'master'; }

# The number of a replica of a node.
sub replica_of
{
	my ($self, $n) = @_;
	my $id = $self->id($n);

	foreach my $replica (grep { $_ != $n } $self->up)
	{
		return $replica if grep { /myself,slave(,nofailover)? $id / } $self->lines($self->node($replica));
	}
	die "node $n has no replica\n";
}

# Waits until the replica of a node has all that the node has.
sub wait_for_replica
{
	my ($self, $n) = @_;
	$self->wait_for(sub { my $info = $_[0]->command('INFO', 'replication'); my ($end) = $info =~ /master_repl_offset:(\d+)/; $info =~ /slave0:.*offset=$end,/ }, "node $n has no more than its replica", $n);
	return;
}

# From now on the replica of a node gets nothing; and gets it again.
sub cut_replica
{
	my ($self, $replica) = @_;
	my $node = $self->node($replica);

	$node->command('CONFIG', 'SET', 'masterauth', 'wrong');
	$node->command('CONFIG', 'SET', 'masteruser', 'nobody');
	$node->command('CLIENT', 'KILL', 'TYPE', 'master');
	return;
}

sub join_replica
{
	my ($self, $replica) = @_;
	$self->node($replica)->command('CONFIG', 'SET', $_, '') foreach 'masteruser', 'masterauth';
	return;
}

# A replica takes the place of its master; $how is nothing, FORCE or TAKEOVER. A failover
# that finds no majority in its time is asked for again. So is one that the replica alone believes
# in: one that was elected less than four node timeouts ago takes these votes for those of now,
# begins no epoch, and is a replica again as soon as it hears of its master.
sub failover
{
	my ($self, $replica, @how) = @_;
	my $node = $self->node($replica);
	my $asked = 0;

	$self->wait_for(
		sub {
			return 1 if $self->serves($_[0], $replica);
			if (time > $asked + 3)
			{
				$asked = time;
				$node->command('CLUSTER', 'FAILOVER', @how) if $node->command('ROLE')->[0] eq 'slave';
			}
			return 0;
		},
		"node $replica takes the place of its master");
	$self->{elected}{$replica} = time;
	return;
}

# Waits until a replica can be elected by itself: one that was elected less than four node
# timeouts ago takes these votes for those of now, and is a master that no other node knows.
sub wait_until_electable
{
	my ($self, $replica) = @_;
	my $since = $self->{elected}{$replica} // return;

	usleep(100_000) until time > $since + 4 * $self->{fails_after};
	return;
}

# Whether a node knows that this one serves slots.
sub serves
{
	my ($self, $node, $n) = @_;
	my $port = $self->node($n)->port;
	return grep { $_->[2][1] == $port } @{ $node->command('CLUSTER', 'SLOTS') };
}

# Waits until all nodes that can answer know that this one serves slots.
sub wait_until_served_by
{
	my ($self, $n) = @_;
	$self->wait_for(sub { $self->serves($_[0], $n) }, "node $n serves slots");
	$self->{elected}{$n} = time;
	return;
}

# A node comes back without its keys, and still is who it was.
sub restart_empty
{
	my ($self, $n) = @_;
	$self->node($n)->kill9;
	$self->node($n)->lose_keys;
	$self->node($n)->start;
	return;
}

# Moves so many slots from one node to another by redis-cli, in the background; returns the IPC::Run handle.
sub start_reshard
{
	my ($self, $from, $to, $slots) = @_;
	return $self->start_cli('reshard', '--cluster-from', $self->id($from), '--cluster-to', $self->id($to), '--cluster-slots', $slots, '--cluster-yes', '--cluster-timeout', 5000);
}

# Ends what others have left half-way. On a busy machine a node may not answer in time.
sub fix
{
	my ($self) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	return $self->end_moves if $self->ask('INFO', 'server') =~ /^valkey_version:/m;
	until ($self->start_cli('fix', '--cluster-yes')->finish)
	{
		die "redis-cli --cluster fix: $self->{cli}\n" if time > $deadline;
		$self->wait_until_ok;
	}
	return;
}

# Ends all moves of slots by hand. The tool of Valkey (8.1, 9.1) makes the node that takes a slot over
# its owner before it tells the other one, which deletes what it has if it hears of that first.
sub end_moves
{
	my ($self) = @_;

	foreach my $from (grep { $self->is_master($_) } $self->up)
	{
		my ($myself) = grep { /myself/ } $self->lines($self->node($from));
		while ($myself =~ /\[(\d+)->-(\w+)\]/g)
		{
			my ($slot, $id) = ($1, $2);
			my ($to) = grep { $self->id($_) eq $id } $self->up;
			$self->move_slot($slot, $from, $to);
		}
	}
	return;
}

sub start_cli
{
	my ($self, $command, @words) = @_;
	my $node = $self->node(($self->up)[0]);
	$self->{cli} = '';
	return IPC::Run::start([ 'redis-cli', '--cluster', $command, '127.0.0.1:' . $node->port, @words ],
		'<', \undef, '>', \$self->{cli}, '2>', \$self->{cli});
}

# Moves keys to another node. One that does not answer in time may have got them all the same;
# otherwise a key that is there already is a fault, and not replaced.
sub migrate
{
	my ($self, $from, $to, @keys) = @_;
	my @again;

	$self->wait_for(
		sub {
			return 1 if eval { $_[0]->command('MIGRATE', '127.0.0.1', $self->node($to)->port, '', 0, 5000, @again, 'KEYS', @keys) };
			@again = ('REPLACE') if $@ =~ /^IOERR/;
			die $@;
		},
		"node $to gets keys of node $from", $from);
	return;
}

# Moves a slot to another node, as redis-cli does; with stop_after => n only its first n
# keys, with only => qr/.../ only such keys.
sub move_slot
{
	my ($self, $slot, $from, $to, %option) = @_;
	my ($source, $target) = ($self->node($from), $self->node($to));
	my $moved = 0;

	$target->command('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $self->id($from));
	$source->command('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', $self->id($to));
	if ($option{only})
	{
		my @keys = grep { /$option{only}/ } @{ $source->command('CLUSTER', 'GETKEYSINSLOT', $slot, 100) };
		$self->migrate($from, $to, @keys);
		return;
	}
	while (my @keys = @{ $source->command('CLUSTER', 'GETKEYSINSLOT', $slot, 1) })
	{
		return if defined $option{stop_after} && $moved >= $option{stop_after};
		$self->migrate($from, $to, @keys);
		$moved += @keys;
	}
	return if defined $option{stop_after};
	my @others = grep { $_ != $target && $_ != $source } map { $self->node($_) } grep { $self->is_master($_) } $self->up;
	$_->command('CLUSTER', 'SETSLOT', $slot, 'NODE', $self->id($to)) foreach $target, $source, @others;
	$self->wait_for(sub { grep { $slot >= $_->[0] && $slot <= $_->[1] && $_->[2][1] == $target->port } @{ $_[0]->command('CLUSTER', 'SLOTS') } }, "slot $slot is served by node $to");
	return;
}

# Waits until the code returns true for each node that can answer, or for these.
sub wait_for
{
	my ($self, $code, $what, @only) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	foreach my $n (@only ? @only : $self->up)
	{
		until (eval { $code->($self->node($n)) })
		{
			die "it does not come true that $what: $@\n" . $self->node($n)->log if time > $deadline;
			usleep(20_000);
		}
	}
	return;
}

1;
