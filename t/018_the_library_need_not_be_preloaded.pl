# The functions work without the library being preloaded; what they have stored is sent
# when it is.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0, conf => "shared_preload_libraries = ''");
$node->sql('CREATE EXTENSION outbox');
my $line = qr/shared_preload_libraries = 'outbox'/;

my ($status, $out, $error) = $node->psql('postgres', <<'END');
BEGIN;
SELECT outbox_begin('m1');
SELECT outbox_enqueue('d', '1');
SELECT outbox_enqueue('d', '2');
SELECT outbox_commit();
COMMIT;
SELECT outbox_begin('m1');
SELECT outbox_enqueue('d', '3', message_id => 'three');
BEGIN;
SELECT outbox_begin('m2');
SELECT outbox_enqueue('d', 'no');
SELECT outbox_commit();
ROLLBACK;
END
is($status, 0, 'the functions work');
like($out, qr/^t\n.*\n2\nf\nthree\nt\n/s, '... with the usual answers');
like($error, qr/WARNING: .*outbox/, 'a warning says that the library is not preloaded');
like($error, $line, '... with the line for postgresql.conf');
is(() = $error =~ /WARNING/g, 1, '... once per session');

is($node->status('pending'), 3, 'messages are stored');
is($node->sql('SELECT string_agg(msgid, $$ $$) FROM outbox.records'), 'm1', '... and records');
like($node->status('problem'), qr/preload/, 'outbox.status says what is wrong');
like($node->status('problem'), $line, '... and what to do');

# Sessions that race for a message wait for each other without shared memory, too.
my @sessions = ($node->session, $node->session);
$sessions[0]->query(q{BEGIN; SELECT outbox_begin('m3', concurrency => 'pessimistic')});
$sessions[1]->query_until(qr/asked/, "\\echo asked\nSELECT outbox_begin('m3', concurrency => 'pessimistic');\n");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted}), 'the second copy of a message waits');
$sessions[0]->query('SELECT outbox_commit(); COMMIT');
like($sessions[1]->query('SELECT 1'), qr/^f$/m, '... and is a duplicate');
$_->quit foreach @sessions;

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'");
$node->restart;
eventually { $redis->count('d') == 3 } 'with the library they are sent';
is($redis->sequence('d'), '1 2 3', '... in order');
is($node->sql(q{SELECT outbox_begin('m1')}), 'f', 'records are kept');
ok($node->wait_until_sent, 'nothing waits');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

done_testing();
