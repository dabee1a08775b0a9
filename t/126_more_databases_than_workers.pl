# Each database needs a worker. If there are too few, some databases wait, which their
# outbox.status says, and the others are not disturbed. With enough workers, all are served.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $number = 20;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'max_worker_processes = 12', extension => 0);
my @databases = map { "many$_" } 1 .. $number;

sub served { return grep { $redis->count($_) > 0 } @databases; }

my $log = $node->log_position;
foreach my $database (@databases)
{
	$node->sql("CREATE DATABASE $database");
	$node->sql('CREATE EXTENSION outbox', $database);
	$node->sql('SELECT outbox_enqueue(current_database(), $$x$$)', $database);
}
eventually { $node->log_since($log) =~ /no worker slot is free/ } 'the log says that no worker slot is free';
# The launcher starts dispatchers only to look, too; when each worker serves a database, that is over.
my $workers = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'outbox dispatcher%'};
my $others = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('outbox launcher', 'logical replication launcher')};
eventually { $node->sql("SELECT ($workers) + ($others)") == 12 && served() == $node->sql($workers) } 'as many databases are served as there are workers';
my %served = map { $_ => 1 } served();
my ($waiting) = grep { !$served{$_} } @databases;
eventually { $node->status('problem', $waiting) =~ /Raise max_worker_processes and restart/ } 'another one says what it waits for';
is($node->status('pending', $waiting), 1, '... with its message');

my ($lucky) = sort keys %served;
$node->sql('SELECT outbox_enqueue(current_database(), $$x$$)', $lucky);
ok($node->wait_until_sent($lucky), 'one that is served goes on');

$node->sql("DROP DATABASE $lucky");
eventually { served() > keys %served } 'when one goes, another one is served';

# Each commit in one that is not wakes the launcher, which looks no more often for that.
my ($other) = do { my %now = map { $_ => 1 } $lucky, served(); grep { !$now{$_} } @databases };
my ($launcher) = $node->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'");
sub switches { my $sum = 0; $sum += $_ foreach PostgreSQL::Test::Utils::slurp_file("/proc/$launcher/status") =~ /ctxt_switches:\s+(\d+)/g; return $sum; }
my $load = $node->start_load(clients => 4, seconds => 300, rate => 1000, database => $other, scripts => ["SELECT outbox_enqueue('d', 'x');\n"]);
wait_until { $node->status('pending', $other) > 500 };
my $before = [ switches(), $node->status('pending', $other) ];
my $took = seconds { sleep 5 };
my $often = (switches() - $before->[0]) / $took;
my $commits = ($node->status('pending', $other) - $before->[1]) / $took;
cmp_ok($often, '<', 300, "the launcher is not kept busy by commits (it works $often times a second, at $commits commits)");
$load->stop;

$node->append_conf('postgresql.conf', 'max_worker_processes = 40');
$node->restart;
@databases = grep { $_ ne $lucky } @databases;
eventually { served() == $number - 1 } 'with enough workers all are served';
is($redis->count($waiting), 1, '... and nothing was sent twice');

# The one slot is that of PostgreSQL's own logical replication launcher.
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
like($node->status('problem', $waiting), qr/the launcher is not.*raise max_worker_processes and restart/, 'without a slot for the launcher the problem says what to raise');

done_testing();
