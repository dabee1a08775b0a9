# DROP DATABASE and its like lock a database before they check privileges. A role that may
# not drop it does not make its dispatcher leave, also by trying in a loop or by waiting
# for that lock; a role that may does.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
$node->sql($_) foreach 'CREATE ROLE stranger LOGIN CREATEDB', 'CREATE ROLE owner LOGIN', 'CREATE DATABASE victim OWNER owner';
$node->sql('CREATE EXTENSION outbox', 'victim');
my $dispatcher = $node->dispatcher('victim');
my $sent = 0;

sub goes_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$sent++;
	$node->sql(q{SELECT outbox_enqueue('d', 'x')}, 'victim');
	eventually { $redis->count('d') == $sent } "$name: messages are sent";
	is($node->dispatcher('victim'), $dispatcher, '... by the same dispatcher');
	return;
}

goes_on('before');

# A loop of commands that are refused.
my $tries = <<'END';
\set ON_ERROR_STOP 0
DROP DATABASE victim;
CREATE DATABASE stolen TEMPLATE victim;
ALTER DATABASE victim RENAME TO stolen;
ALTER DATABASE victim SET TABLESPACE pg_default;
END
foreach my $round (1 .. 3)
{
	my (undef, undef, $errors) = $node->psql('postgres', $tries x 30, extra_params => [ '-U', 'stranger' ], on_error_stop => 0);
	my %refused = map { $_ => 1 } $errors =~ /ERROR:  (.*)/g;
	is(join('; ', sort keys %refused), 'must be owner of database victim; permission denied to copy database "victim"', 'all are refused');
	goes_on("round $round");
}

# A command that waits: its role holds a lock on the database, for which no privilege is needed.
my $holder = $node->session('postgres', extra_params => [ '-U', 'stranger' ]);
$holder->query_safe(q{BEGIN; ALTER ROLE stranger IN DATABASE victim SET work_mem = '1MB'});
my $session = $node->session('victim');
my $waiter = $node->session('postgres', extra_params => [ '-U', 'stranger' ]);
$waiter->query_until(qr/begun/, "\\echo begun\nDROP DATABASE victim;\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'object' AND mode = 'AccessExclusiveLock'}),
	'a stranger waits to drop it');
foreach my $round (1 .. 3)
{
	$session->query_safe(q{SELECT outbox_enqueue('d', 'x')});
	$sent++;
	eventually { $redis->count('d') == $sent } '... messages are sent';
}
is($node->sql(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type LIKE 'outbox dispatcher%' AND datname = 'victim'}),
	$dispatcher, '... by the same dispatcher');
$holder->query_safe('ROLLBACK');
$holder->quit;
$waiter->quit;
$session->quit;
goes_on('afterwards');

# The owner has to wait for such a lock, longer than the dispatcher stays away for a command; then the database is dropped.
$holder = $node->session('postgres', extra_params => [ '-U', 'stranger' ]);
$holder->query_safe(q{BEGIN; ALTER ROLE stranger IN DATABASE victim SET work_mem = '1MB'});
$waiter = $node->session('postgres', extra_params => [ '-U', 'owner' ]);
$waiter->query_until(qr/begun/, "\\echo begun\n" . "DROP DATABASE IF EXISTS victim;\n" x 5);    # each gives up after five seconds
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'object' AND mode = 'AccessExclusiveLock'}),
	'its owner waits to drop it');
is($node->sql(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type LIKE 'outbox dispatcher%' AND datname = 'victim'}),
	$dispatcher, '... and the dispatcher does not leave before there is need');
$holder->query_safe('ROLLBACK');
$holder->quit;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_database WHERE datname = 'victim'}), '... and then it is dropped');
$waiter->quit;

# A role that may create databases may copy a template database.
$node->sql('ALTER DATABASE postgres IS_TEMPLATE true');
$node->sql('CREATE DATABASE copy TEMPLATE postgres', 'template1', extra_params => [ '-U', 'stranger' ]);
is($node->sql('SELECT count(*) FROM outbox.instance', 'copy'), 1, 'a template is copied by anybody who may create databases');

done_testing();
