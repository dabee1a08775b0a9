# The bench says of each turn whether the books agree, and that is why its figures are
# believed. So it runs here in its smallest form, and must notice when a message is missing
# or there twice.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $bench = dirname(__FILE__) . '/../bench';
my $python = python();
plan skip_all => 'no python3 with psycopg and redis' unless $python;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'max_connections = 100');
my $folder = PostgreSQL::Test::Utils::tempdir_short();

# The bench finds its servers in a folder; here one server does for two of them.
mkdir "$folder/$_" or die $! foreach qw(redis results);
symlink $redis->socket, "$folder/redis/redis.sock" or die $!;
symlink $node->host, "$folder/$_" or die $! foreach qw(ours theirs);
local %ENV = (%ENV, SANDBOX => $folder, PGPORT => $node->port, BENCH_ONLY => 'throughput');
PostgreSQL::Test::Utils::system_or_bail('sh', "$bench/programs", "$folder/programs");

# Runs Python; returns what it says, and the exit code.
sub says
{
	my ($out, @command) = ('', @_);
	IPC::Run::run([ $python, @command ], '<', '/dev/null', '>', \$out, '2>&1');
	return ($out, $? >> 8);
}

my ($out, $status) = says("$bench/compare.py", "$folder/results", 'smallest');
is($status, 0, 'the bench runs') or diag $out;
like($out, qr/: $_: [1-9]\d* transactions.*, 0 missing, 0 doubled$/m, "the books of $_ agree") foreach 'outbox', 'hand-written table, polled';
like(PostgreSQL::Test::Utils::slurp_file("$folder/results/results.md"), qr/^\| outbox \| .* agree \|$/m, '... and the table says so');

# The last turn was that of the table.
sub verdict
{
	my ($missing) = says('-c', "import sys; sys.path.insert(0, '$bench'); import books; print(*books.compare('theirs', 'polled'))");
	chomp $missing;
	return $missing;
}

my ($entry, $fields) = @{ $redis->command('XRANGE', 'bench', '-', '+', 'COUNT', 1)->[0] };
$redis->command('XADD', 'bench', '*', @$fields);
is(verdict(), '0 1', 'a message that came twice');
$redis->command('XDEL', 'bench', $redis->command('XREVRANGE', 'bench', '+', '-', 'COUNT', 1)->[0][0]);
$redis->command('XDEL', 'bench', $entry);
is(verdict(), '1 0', 'a message that is missing');

done_testing();
