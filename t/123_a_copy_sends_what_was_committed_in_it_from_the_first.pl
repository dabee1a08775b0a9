# A copy by CREATE DATABASE ... TEMPLATE sends what was committed in it before its
# dispatcher first ran, and nothing else, even if its row in pg_database was changed.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);
my $launcher = $node->sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'outbox launcher%'");

sub enqueue
{
	my ($database, $body) = @_;
	$node->sql("SELECT outbox_enqueue('d', '$body')", $database);
	return;
}

# No dispatcher starts while the launcher is stopped.
sub copy
{
	my ($original, $copy) = @_;
	kill 'STOP', $launcher;
	$node->sql("CREATE DATABASE $copy TEMPLATE $original");
	return;
}

sub is_adopted
{
	my ($database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until($database, 'SELECT i.database = d.oid FROM outbox.instance i, pg_database d WHERE d.datname = current_database()'),
		"$database knows its own name");
}

sub all_sent
{
	my ($name, @bodies) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') >= @bodies } $name;
	ok(!(grep { !$node->wait_until_sent($_) } 'original', 'copy', 'second'), '... nothing is left');
	return is_exactly_once([ $redis->bodies('d') ], \@bodies, '... each once');
}

$node->sql('CREATE DATABASE original');
$node->sql('CREATE EXTENSION outbox', 'original');
enqueue('original', 'sent before');
ok($node->wait_until_sent('original'), 'the original has sent something');
$node->sql('INSERT INTO outbox.lane VALUES (1)', 'original');
$redis->stop;
enqueue('original', 'pending in the original');

copy('original', 'copy');
enqueue('copy', 'plain');
copy('copy', 'second');
enqueue('second', 'of the second');

# Transactions that end before the dispatcher looks ...
$node->sql(<<'END', 'copy');
BEGIN;
SELECT outbox_enqueue('d', 'top');
SAVEPOINT s;
SELECT outbox_enqueue('d', 'savepoint');
RELEASE s;
SAVEPOINT s;
SELECT outbox_enqueue('d', 'rolled back to');
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT outbox_enqueue('d', 'rolled back');
ROLLBACK;
INSERT INTO outbox.log_2 (id, tx, enqueued_at, database, message_id, dest, body) VALUES (1000, '1', now(), 1, 'r', 'd', 'restored');
END

# ... and after.
my $session = $node->session('copy');
$session->query_safe(q{BEGIN; SELECT outbox_enqueue('d', 'in progress')});
$node->sql(qq{BEGIN; SELECT outbox_enqueue('d', '$_'); PREPARE TRANSACTION '$_'}, 'copy') foreach 'prepared', 'given up';
enqueue('copy', 'younger');

$node->sql("GRANT CONNECT ON DATABASE $_ TO PUBLIC") foreach 'copy', 'second';
$node->sql('VACUUM FREEZE pg_database', 'copy');
kill 'CONT', $launcher;
is_adopted($_) foreach 'copy', 'second';
is($node->sql('SELECT count(*) FROM outbox.lane', 'copy'), 0, '... and has no lane yet');
$session->query_safe(q{COMMIT});
$session->quit;
$node->sql(q{COMMIT PREPARED 'prepared'}, 'copy');
$node->sql(q{ROLLBACK PREPARED 'given up'}, 'copy');
enqueue('copy', 'later');
$redis->start;

my @bodies = (
	'sent before', 'pending in the original', 'plain', 'top', 'savepoint', 'restored', 'in progress',
	'prepared', 'younger', 'later', 'of the second');
all_sent('each sends what was committed in it', @bodies);

# The log of a copy still holds messages of its original.
$redis->stop;
$redis->lose_data;
enqueue('second', 'after the loss');
$redis->start;
all_sent('a Redis that was emptied gets it all again', @bodies, 'after the loss');

# The original goes before the copy's dispatcher can look.
$redis->stop;
enqueue('original', 'inherited');
copy('original', 'heir');
enqueue('heir', 'of the heir');
$node->sql('GRANT CONNECT ON DATABASE heir TO PUBLIC');
$session = $node->session('heir');
$session->query_safe('BEGIN; LOCK TABLE outbox.instance IN ACCESS EXCLUSIVE MODE');
kill 'CONT', $launcher;
$node->sql('DROP DATABASE original');
$session->query_safe('COMMIT');
$session->quit;
is_adopted('heir');
is($node->sql('SELECT count(*) FROM outbox.lane', 'heir'), 1, '... and has the lanes of the original');
$redis->start;
eventually { $redis->count('d') >= @bodies + 3 } 'an heir sends what its original would have sent, and its own';
ok($node->wait_until_sent('heir'), '... nothing is left');
is_exactly_once([ $redis->bodies('d') ], [ @bodies, 'after the loss', 'inherited', 'of the heir' ], '... each once');

END { kill 'CONT', $launcher if $launcher; }
done_testing();
