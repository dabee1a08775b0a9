# A group of workers of examples/partitions on the streams "orders", of a single Redis or a
# cluster; the messages of 24 keys that it is sent, and its books.

package Workers;

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Test::More;

my $folder = Cwd::abs_path(dirname(__FILE__) . '/../../examples/partitions');

# Check whether there are workers in JavaScript, too.
sub has_node { return system(q{node -e 'require("pg"); require("ioredis")' >/dev/null 2>&1}) == 0; }

# Options: node, redis, lease (ms).
sub new
{
	my ($class, %option) = @_;
	my $self = bless { sent => 0, worker => {}, has_node => has_node(), lease => 2000, %option }, $class;
	$self->{node}->sql(PostgreSQL::Test::Utils::slurp_file("$folder/schema.sql"));
	return $self;
}

# Starts a worker, by "python" or "node"; one in Python if there is no Node.js.
sub start
{
	my ($self, $name, $language) = @_;
	my ($node, $redis) = @$self{ 'node', 'redis' };
	my $run = $self->{worker}{$name} = { out => '', error => '' };
	my $here = Cwd::getcwd();
	my @arguments = ('orders', 'billing', $name, $self->{lease}, 2);
	my @command = ($language eq 'node' && $self->{has_node})
	  ? ('node', 'worker.js', 'postgresql://' . getpwuid($>) . '@/postgres?host=' . $node->host . '&port=' . $node->port, $redis->can('socket') ? $redis->socket : $redis->url, @arguments)
	  : (python(), 'worker.py', $node->connstr('postgres'), $redis->url, @arguments);

	chdir $folder;
	$run->{run} = IPC::Run::start(\@command, '<', \undef, '>', \$run->{out}, '2>', \$run->{error});
	chdir $here;
	return;
}

sub names { my ($self) = @_; my @names = sort keys %{ $self->{worker} }; return @names; }
sub run { my ($self, $name) = @_; return $self->{worker}{$name}{run}; }
sub output { my ($self, $name) = @_; $self->run($name)->pump_nb; return $self->{worker}{$name}{out}; }
sub signal_to { my ($self, $name, $signal) = @_; $self->run($name)->signal($signal); return; }

# Ends workers by a signal; returns what the last one said of errors.
sub end
{
	my ($self, $signal, @names) = @_;
	my $error;

	foreach my $name (@names)
	{
		$self->signal_to($name, $signal);
		eval { $self->run($name)->finish };
		$error = (delete $self->{worker}{$name})->{error};
	}
	return $error;
}

# Sends a command to the server that has a key.
sub ask
{
	my ($self, $command, $key, @words) = @_;
	my $server = $self->{redis}->can('node_of') ? $self->{redis}->node_of($key) : $self->{redis};
	return $server->command($command, $key, @words);
}

# How many partitions each worker has, by its name: "a=3 b=2".
sub shares
{
	my ($self) = @_;
	my %share = map { (split /:/)[0] => 0 } @{ $self->ask('ZRANGE', '{billing:orders}:workers', 0, -1) };
	$share{ (split /:/)[0] }++ foreach @{ $self->ask('HVALS', '{billing:orders}:partitions') };
	return join ' ', map { "$_=$share{$_}" } sort keys %share;
}

# Sends the next messages of each key.
sub send_messages
{
	my ($self, $count) = @_;

	$self->{node}->sql(<<"SQL");
SELECT outbox_enqueue('orders', jsonb_build_object('number', i), message_id => format('k%s-%s', k, i), key => 'k' || k)
FROM generate_series($self->{sent} + 1, $self->{sent} + $count) i, generate_series(1, 24) k;
SQL
	$self->{sent} += $count;
	return;
}

# Changes the number of partitions, after all that was sent before.
sub spread
{
	my ($self, $partitions) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$self->{node}->wait_until_sent;
	$self->{node}->sql("SELECT outbox_set_destination('orders', partitions => $partitions)");
	eventually { ($self->ask('HGET', 'outbox:partitions:orders', 'partitions') // 0) == $partitions } "there are $partitions partitions";
	return;
}

sub sent { return 24 * $_[0]->{sent}; }
sub handled { return $_[0]->{node}->sql('SELECT count(*) FROM handled'); }

sub check_books
{
	my ($self, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { $self->handled == $self->sent } "$what: all is handled";
	is($self->{node}->sql(<<"SQL"), 24, '... the messages of each key in their order, each once');
SELECT count(*) FROM (SELECT key FROM handled GROUP BY key
	HAVING array_agg((body::json ->> 'number')::integer ORDER BY place) = array(SELECT generate_series(1, $self->{sent}))) t
SQL
	return;
}

1;
