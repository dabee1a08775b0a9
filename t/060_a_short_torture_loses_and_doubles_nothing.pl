# A short torture with a fixed seed: clients, kills, cut connections, destinations that
# refuse; then what clients, PostgreSQL and Redis know is compared. See dev/torture.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Test::More;

my $python = Outbox::python() or plan skip_all => 'no python3 with psycopg and redis';

local $ENV{TORTURE_SECONDS} = 25;
local $ENV{TORTURE_SEED} = 3805;
delete local @ENV{qw(TORTURE_LOSSY TORTURE_TLS TORTURE_ONLY TORTURE_CLUSTER TORTURE_KILL_POINTS)};

my $folder = PostgreSQL::Test::Utils::tempdir_short();
my @torture = ($python, dirname(__FILE__) . '/../dev/torture/torture.py', "$folder/torture");
my $output = '';
my $run = IPC::Run::start(\@torture, '<', \undef, '>&', \$output, IPC::Run::timeout(1000));
my $succeeded = eval { $run->finish };
my $reason = $@;

if ($reason)
{
	$run->signal('TERM');    # so that it stops its servers
	eval { $run->finish };
}
is($reason, '', 'the torture comes to an end');
ok($succeeded, '... successfully');
like($output, qr/: the books agree$/m, '... the books agree') or diag $output;
note $output;

done_testing();
