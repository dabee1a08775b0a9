# A server with more databases than outbox can serve says so, in its log and in the views of
# a database that is not served. When others are dropped, that one is served.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'autovacuum = off');

# To create so many would take minutes. These rows allow connections until the launcher has
# seen them, which ALTER DATABASE makes it do, if it does not look by itself before.
my $log = $node->log_position;
$node->sql(<<'END_SQL');
CREATE TABLE fake AS SELECT * FROM pg_database WHERE datname = 'template1';
DO $$
BEGIN
	FOR n IN 1..512 LOOP
		UPDATE fake SET oid = 4000000000 + n, datname = 'fake' || n, datistemplate = false, datallowconn = true;
		INSERT INTO pg_database SELECT * FROM fake;
	END LOOP;
END;
$$;
END_SQL
$node->sql('ALTER DATABASE postgres CONNECTION LIMIT -1');
eventually { $node->log_since($log) =~ /outbox: too many databases/ } 'the log says that there are too many databases';
like($node->log_since($log), qr/maximum number of databases is 512/, '... and how many there may be');
$node->sql(q{UPDATE pg_database SET datallowconn = false WHERE datname LIKE 'fake%'});

$node->sql('CREATE DATABASE late');
$node->sql('CREATE EXTENSION outbox', 'late');
$node->sql(q{SELECT outbox_enqueue('d', 'x')}, 'late');
like($node->status('problem', 'late'), qr/^No dispatcher is running because the server has more than 512 databases\. Drop/, 'a database that is not served says why');
is($node->status('pending', 'late'), 1, '... with its message');
$node->sql(q{SELECT outbox_enqueue('e', 'x')});
eventually { $redis->count('e') == 1 } 'the others are served';

# Nothing counts what is forgotten there now. A session that has found nothing forgotten must look again.
my $session = $node->session('late');
$session->query_safe(q{SELECT outbox_begin('first'), outbox_commit()});
$node->sql(q{SELECT outbox_begin('again'), outbox_commit()}, 'late');
is($node->sql(q{SELECT outbox_forget('again')}, 'late'), 't', 'an id is forgotten there');

$node->sql(q{DELETE FROM pg_database WHERE datname LIKE 'fake%'});
$node->sql('ALTER DATABASE postgres CONNECTION LIMIT -1');
eventually { $redis->count('d') == 1 } 'when others are gone, it is served';
eventually { $node->status('problem IS NULL', 'late') eq 't' } '... and has no problem any more';
is($session->query_safe(q{SELECT outbox_begin('again'), outbox_commit()}), 't|0', 'what was forgotten before is new to a session that had looked before that');
$session->quit;
done_testing();
