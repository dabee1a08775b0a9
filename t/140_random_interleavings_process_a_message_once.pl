# Random schedules of two and three workers with two messages, while the ring of records
# rotates, is compacted and expires, and workers and the server die: each message is
# processed once and sent once, and no id is forgotten. See dev/schedules. A step is a
# statement; t/008 shows what is safe within statements that run at the same time.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $python = Outbox::python() or plan skip_all => 'no python3 with psycopg and redis';
my $folder = dirname(__FILE__) . '/../dev/schedules';
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => PostgreSQL::Test::Utils::slurp_file("$folder/postgresql.conf"));

local $ENV{SCHEDULES} = 320;
my @schedules = ($python, "$folder/schedules.py", $node->connstr('postgres') . ' user=' . $node->sql('SELECT current_user'), $redis->socket);
my $output = '';
my $run = IPC::Run::start(\@schedules, '<', \undef, '>&', \$output, IPC::Run::timeout(1000));
my $succeeded = eval { $run->finish };
my $reason = $@;

$run->kill_kill if $reason;
is($reason, '', 'the schedules come to an end');
ok($succeeded, '... successfully');
like($output, qr/^SCHEDULES_SEED=\d+$/m, '... and can be repeated');
like($output, qr/^\d+ schedules, 0 against the rule, 0 differences in the books$/m, '... all according to the rule') or diag $output;
note $output;

done_testing();
