# ACL rules are those of each node of a Redis Cluster. Where the outbox lacks a right on one of them,
# something else is in the place of a fence, or XADD has another name, messages for its slots
# wait, and others are sent. So it is if that node is the first one of the URL, and after a restart. A single Redis that
# names another server is not followed.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Ledger;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0);
my @nodes = $cluster->nodes;
allow($_) foreach 0 .. 2;
my $node = Outbox->create('main', redis => $cluster, extension => 1, conf => 'outbox.dispatch = off');
my $id = $node->sql('SELECT id FROM outbox.instance');

# All messages wait for the node of the lease.
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($bad) = grep { !$in_use{$_} } 0 .. 2;
my ($of_bad) = grep { $cluster->index_of($_) == $bad } map { "b$_" } 1 .. 20;
my @others = (grep { $cluster->index_of($_) != $bad } map { "s$_" } 1 .. 20)[ 0 .. 3 ];
my $ledger = Ledger->new($node, $cluster, $of_bad, @others);
$node->set('outbox.redis_url' => url($bad), 'outbox.dispatch' => 'on');
$ledger->post;
$ledger->agrees('messages arrive');

# The user may do all but this on a node, from the next connection on.
sub allow
{
	my ($n, @rules) = @_;
	$nodes[$n]->command('ACL', 'SETUSER', 'sender', 'on', '>secret', 'resetkeys', '~*', '+@all', @rules);
	$nodes[$n]->command('CLIENT', 'KILL', 'TYPE', 'normal');
	return;
}

# Starts that node again with these settings. Its file must not have the command that they rename.
sub start_with
{
	my (@settings) = @_;
	my $redis = $nodes[$bad];

	$redis->command('BGREWRITEAOF');
	wait_until { $redis->command('INFO', 'persistence') =~ /aof_rewrite_in_progress:0.*aof_rewrite_scheduled:0/s } or die 'the file is not rewritten';
	$redis->stop;
	$redis->{config} = [@settings];
	$redis->start;
	allow($bad);
	return;
}

# The URL that begins with that node.
sub url
{
	my ($first) = @_;
	return 'redis+cluster://sender:secret@' . join ',', map { '127.0.0.1:' . $nodes[$_]->port } $first, grep { $_ != $first } 0 .. 2;
}

sub arrived_of_others { my $n = 0; $n += $cluster->count($_) foreach @others; return $n; }

# Posts so many messages to each stream, twice, and tests that those of the other nodes arrive.
sub others_go_on
{
	my ($name, $messages) = @_;

	foreach my $time (1, 2)
	{
		my $before = arrived_of_others();

		$node->sql("SELECT post(s) FROM generate_series(1, $messages) n, unnest(" . Ledger::array($of_bad, @others) . ') s');
		next if wait_until { arrived_of_others() == $before + $messages * @others };
		diag $node->status('redis_error');
		return ok(0, $name);
	}
	return ok(1, $name);
}

foreach my $rule ('-get', '-evalsha', '-script|load', '-set', '-cluster|slots', '-cluster|nodes')
{
	allow($bad, $rule);
	others_go_on("$rule on one node: others are sent", 1);
	allow($bad);
	$ledger->agrees('... and all when it is given back');
}

foreach my $rule ('-get', '-script|load', '-xadd')
{
	allow($bad, $rule);
	$node->restart;
	others_go_on("a restart with $rule on one node: others are sent", 1);
	allow($bad);
	$ledger->agrees('... and all when the right is given back');
}

# Its own rights are not enough, or somebody has damaged the fence.
my ($fence) = grep { $cluster->slot_of($_) == $cluster->slot_of($of_bad) } @{ $nodes[$bad]->command('KEYS', "outbox:fence:$id:*") };
my $value = $nodes[$bad]->command('GET', $fence);
allow($bad, 'resetkeys', '~b*');
others_go_on('one node forbids keys of the outbox: others are sent', 1);
allow($bad);
$ledger->agrees('... and all when it allows them');
$value = $nodes[$bad]->command('GET', $fence);
$nodes[$bad]->command('DEL', $fence);
$nodes[$bad]->command('HSET', $fence, 'what', 'is this');
others_go_on('something else is in the place of a fence: others are sent', 1);
eventually { $node->status('redis_error') =~ /^WRONGTYPE .*, in hash slot @{[ $cluster->slot_of($fence) ]} / } '... which is said' or diag $node->status('redis_error');
foreach my $text ('x' x 300, "x\0y")
{
	$nodes[$bad]->command('DEL', $fence);
	$nodes[$bad]->command('SET', $fence, $text);
	others_go_on('... or a value that no fence has: others are sent', 1);
	eventually { $node->status('redis_error') =~ /^unexpected reply, in hash slot @{[ $cluster->slot_of($fence) ]} / } '... which is said' or diag $node->status('redis_error');
}
$nodes[$bad]->command('SET', $fence, $value);
$ledger->agrees('... and all when the fence is back');

# A node that does not say which slots it moves may be taking one over, so after a restart all wait.
allow($bad, '-cluster|nodes');
$node->restart;
eventually { $node->status('redis_error') =~ /because a master does not answer: .*NOPERM .*nodes.* \(Redis at 127.0.0.1:@{[ $nodes[$bad]->port ]}/ } 'which node does not tell of its slots is said'
  or diag $node->status('redis_error');
allow($bad);
$ledger->post;
$ledger->agrees('... and when it does, messages go on');

# A right that is missed only amid messages would let those of the pages under way through: there are more.
allow($bad, '-xadd');
others_go_on('-xadd on one node: others are sent', 1000);
allow($bad);
$ledger->agrees('... and all when it is given back');

# So would one on which the command has another name, once there is more than what is under way.
my @config = @{ $nodes[$bad]{config} };
start_with(@config, '--rename-command', 'XADD', 'ADD');
others_go_on('XADD has another name on one node: others are sent', 20_000);
start_with(@config);
$ledger->agrees('... and all when it has its name back');

# A server that is no cluster, and whoever answers at the address that it names.
my $trap = Impostor->new(plain => sub { open my $file, '>>', $node->basedir . '/trapped' or die $!; close $file; return; });
my $guide = Impostor->new(plain => sub { $_[1] =~ /^(GET|XADD)$/ ? "-MOVED 1 127.0.0.1:$trap->{port}\r\n" : undef; });
$node->set('outbox.redis_url' => 'redis://127.0.0.1:' . $guide->port);
eventually { $node->status('redis_error') =~ /could not read the lease: MOVED 1 127/ } 'a single Redis names another server';
like(($node->psql('postgres', q{SELECT outbox_send('d', 'x')}))[2], qr/not added: MOVED 1 127/, '... also to outbox_send()');
ok(!-e $node->basedir . '/trapped', '... to which nothing is sent');

done_testing();
