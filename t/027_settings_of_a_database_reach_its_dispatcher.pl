# ALTER DATABASE gives each database its own Redis, at once; settings that are meant for
# sessions do not disturb the dispatcher.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my ($first, $second) = (Redis->new, Redis->new);
my $node = Outbox->create('main', redis => $first);

# A Redis that is new to the database gets more than this message: all that it has
# missed, as far as the log still has it.
sub arrives
{
	my ($redis, $stream, $name, $database) = @_;
	my $count = $redis->count($stream);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->sql("SELECT outbox_enqueue('$stream', 'x')", $database);
	eventually { $redis->count($stream) > $count } $name;
	return;
}

$node->sql('CREATE DATABASE other');
$node->sql('CREATE EXTENSION outbox', 'other');
arrives($first, 'other', 'a database uses the Redis of its server', 'other');
arrives($first, 'main', 'so does another');

$node->sql("ALTER DATABASE other SET outbox.redis_url = '" . $second->url . "'");
eventually { $second->count('other') == 1 } 'with a Redis of its own it sends there what its log still has';
arrives($second, 'other', '... and what is new', 'other');
arrives($first, 'main', 'others stay where they are');
is($first->count('other'), 1, '... and nothing more comes here');

$node->sql('ALTER DATABASE other SET outbox.dispatch = off');
eventually { $node->status('dispatcher_state', 'other') eq 'off' } 'dispatch can be off for one database';
arrives($first, 'main', '... and on for others');
$node->sql('ALTER DATABASE other RESET ALL');
arrives($first, 'other', 'without settings of its own it is back at the Redis of its server', 'other');

# The same by the role that dispatchers have, and by all roles.
my $role = $node->sql('SELECT current_user');
sub is_off { my ($database) = @_; return $node->status('dispatcher_state', $database) eq 'off'; }
$node->sql("ALTER ROLE $role SET outbox.dispatch = off");
eventually { is_off('postgres') && is_off('other') } 'settings of their role reach all dispatchers';
$node->sql("ALTER ROLE $role RESET ALL; ALTER ROLE ALL IN DATABASE other SET outbox.dispatch = off");
eventually { !is_off('postgres') && is_off('other') } '... those of all roles in a database that of the database';
$node->sql('ALTER ROLE ALL IN DATABASE other RESET ALL');
eventually { !is_off('postgres') && !is_off('other') } '... and back';
$node->sql('BEGIN; ALTER DATABASE other SET outbox.dispatch = off; ALTER DATABASE postgres SET outbox.dispatch = off; COMMIT');
eventually { is_off('postgres') && is_off('other') } 'one transaction may change those of two databases';
$node->sql('BEGIN; ALTER DATABASE other RESET ALL; ALTER DATABASE postgres RESET ALL; COMMIT');
arrives($first, 'main', 'all is as before');
$node->sql('CREATE DATABASE plain');
foreach my $database ('postgres', 'plain')
{
	$node->sql("BEGIN; ALTER DATABASE other SET outbox.dispatch = off; PREPARE TRANSACTION 'off'; SELECT 1; COMMIT PREPARED 'off'", $database);
	eventually { is_off('other') } "COMMIT PREPARED brings them to a dispatcher as well, in a database $database";
	$node->sql("BEGIN; ALTER ROLE ALL SET outbox.dispatch = on; ALTER DATABASE other RESET ALL; PREPARE TRANSACTION 'on'", $database);
	$node->restart;
	$node->sql("COMMIT PREPARED 'on'", $database);
	eventually { !is_off('other') } '... also after a restart';
	$node->sql('ALTER ROLE ALL RESET ALL');
}
arrives($first, 'main', 'all is as before');

$node->set('outbox.redis_url' => $second->url);
arrives($second, 'main', 'a reload leads to another Redis');
$node->set('outbox.redis_url' => $first->url);
arrives($first, 'main', '... and back');

# Settings that would make sessions fail, but for those of one role.
$node->sql(<<END);
CREATE ROLE sender SUPERUSER LOGIN;
ALTER DATABASE postgres SET default_transaction_read_only = on;
ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
DO \$\$
DECLARE
	timeout text;
BEGIN
	FOREACH timeout IN ARRAY '{statement_timeout, lock_timeout, idle_in_transaction_session_timeout, transaction_timeout}'::text[] LOOP
		IF current_setting(timeout, true) IS NOT NULL THEN -- the last one came with PostgreSQL 17
			EXECUTE format('ALTER DATABASE postgres SET %I = 1', timeout);
			EXECUTE format('ALTER ROLE sender IN DATABASE postgres SET %I = 0', timeout);
		END IF;
	END LOOP;
END \$\$;
ALTER ROLE sender IN DATABASE postgres SET default_transaction_read_only = off;
ALTER ROLE $role SET synchronous_commit = off;
ALTER ROLE $role SET search_path = nowhere;
ALTER ROLE $role SET session_replication_role = replica;
END
foreach my $state ('goes on', 'starts', 'starts again')
{
	my $count = $first->count('main');

	$node->sql(q{SELECT public.outbox_enqueue('main', 'x')}, 'postgres', extra_params => [ '-U', 'sender' ]);
	eventually { $first->count('main') > $count } "with settings that hurt sessions the dispatcher $state";
	is($first->count('main'), $count + 1, '... and sends nothing twice');
	$node->stop('immediate');
	$node->start;
}

SKIP:
{
	skip 'no transaction_timeout before PostgreSQL 17', 1 if $node->pg_version < 17;
	# No session could connect any more, because that is a transaction, too.
	my $session = $node->session('postgres', extra_params => [ '-U', 'sender' ]);
	$session->query_safe(q{ALTER SYSTEM SET transaction_timeout = '1ms'});
	$node->reload;
	$session->query_safe(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'outbox %'});
	my $count = $first->count('main');
	$session->query_safe(q{SELECT public.outbox_enqueue('main', 'x')});
	eventually { $first->count('main') > $count } 'with a limit on transactions in postgresql.conf all processes start';
	$session->quit;
}

done_testing();
