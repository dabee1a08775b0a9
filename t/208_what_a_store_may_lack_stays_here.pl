# What a PostgreSQL store is told again, it remembers again, also where it has the id from before
# and is about to forget that. And no record goes before a store has what it lacks, whichever
# dispatcher finds that out.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
restart_after_crash = on
outbox.retention = '30s'
outbox.replay_window = '1s'
outbox.cleanup_interval = -1
outbox.command_timeout = '60s'
outbox.connect_timeout = '60s'
END
my $server = Outbox->create('store', conf => <<'END');
outbox.redis_url = 'redis://127.0.0.1:1'
outbox.retention = '30s'
outbox.cleanup_interval = -1
END
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
$server->sql('CREATE DATABASE other');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'other');

sub is_known { return $server->sql("SELECT outbox.store_contains('$_[0]')", $_[1] // 'postgres') eq 't'; }

# Check whether a segment of records has begun to expire.
sub is_published { return $_[0]->sql("SELECT outbox_cleanup() \\gset\nSELECT count(published_at) FROM outbox.ring WHERE ring = 'record'") > 0; }

# An id that a store has, and does not count any more, is new there.
my $key = '11111111111111111111111111111111';
$server->sql("SELECT outbox.store_add('{$key}')");
ok(is_known($key), 'a store knows an id');
eventually { is_published($server) } '... in a segment that is not written any more';
$server->set('outbox.retention' => '1s');
eventually { !is_known($key) } '... until its retention is over';
$server->sql("SELECT outbox.store_add('{$key}')");
ok(is_known($key), 'it is added again, and known again');
$server->sql('SELECT outbox_cleanup()');
$server->set('outbox.retention' => '1h');
eventually { is_known($key) } '... also when cleanup has removed what had expired';

# The same where the sender has been connected since before the retention was made shorter.
sub segment_of { return $server->sql("SELECT segment FROM outbox.ring WHERE ring = 'record' AND $_[1] AND query_to_xml(format('SELECT 1 FROM outbox.record_%s WHERE key = %L', segment, '$_[0]'), false, false, '')::text ~ '<row'"); }
$server->set('outbox.retention' => '30s');
my $sender = $server->session;
my $other = '22222222222222222222222222222222';
$sender->query_safe("SELECT outbox.store_add('{$other}')");
eventually { $server->sql('SELECT outbox_cleanup()'); segment_of($other, 'published_at IS NOT NULL') ne '' } 'a store has another id';
$server->sql(q{ALTER DATABASE postgres SET outbox.retention = '1s'});
eventually { !is_known($other) } '... until its retention is over';
$sender->query_safe("SELECT outbox.store_add('{$other}')");
$sender->quit;
$server->sql('SELECT outbox_cleanup()');
$server->sql(q{ALTER DATABASE postgres SET outbox.retention = '1h'});
eventually { is_known($other) } '... it is added again by an older session, and known after a cleanup';

# A store takes the place of another one, and refuses what it is told until a later dispatcher is
# there, which adds the ids in two calls.
sub is_new { return $node->sql("BEGIN; SELECT outbox_begin('m1001', 'sales'); ROLLBACK") eq 't'; }
my $url = $server->store_url('shard');
$node->sql("SELECT outbox_create_endpoint('sales', dedup_store => '$url', store_retention => '1 h')");
$node->sql(q{DO $$ BEGIN FOR i IN 1 .. 1001 LOOP PERFORM outbox_begin('m' || i, 'sales'), outbox_commit(); END LOOP; END $$});
$key = $node->key_of('m1001');
eventually { is_known($key) && $node->propagated eq 'all' } 'ids come into their store';
eventually { is_published($node) } '... and their records may expire some time later';
$server->sql(<<'SQL', 'other');
ALTER FUNCTION outbox.store_add RENAME TO really_add;
CREATE SEQUENCE calls;
CREATE FUNCTION outbox.store_add(keys uuid[]) RETURNS integer SECURITY DEFINER LANGUAGE plpgsql
	AS 'BEGIN PERFORM pg_advisory_xact_lock(nextval(''public.calls'')); RETURN outbox.really_add(keys); END';
REVOKE ALL ON FUNCTION outbox.store_add FROM public;
SQL
my $gate = $server->session('other');
$gate->query('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
sub waits_at { return $server->sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $_[0] AND NOT granted", 'other') == 1; }

$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $url =~ s{/postgres\?}{/other?}r ]}'");
eventually { $node->propagated ne 'all' } 'another one takes its place: that it lacks ids is noted';
$node->set('outbox.retention' => '1s', 'outbox.cleanup_interval' => '100ms');
my $before = $node->dispatcher;
$node->kill_dispatcher;
eventually { grep { $_ != $before } $node->dispatchers } '... and the dispatcher is killed';
$server->sql('GRANT EXECUTE ON FUNCTION outbox.store_add TO shard', 'other');
eventually { waits_at(1) } 'the next one adds some of them';
$node->sql('SELECT pg_sleep(1.1)');
$gate->query('SELECT pg_advisory_unlock(1)');
eventually { waits_at(2) } '... and then the others';
ok(!is_known($key, 'other') && !is_new(), '... which are known here until these are there');
$gate->query('SELECT pg_advisory_unlock(2)');
eventually { is_known($key, 'other') } 'then the store has all';
eventually { $node->sql('SELECT count(*) FROM outbox.records') == 0 } '... the records go';
ok(!is_new(), '... and the ids are known');

# An id is not forgotten while a store is about to be told it again.
$node->set('outbox.retention' => '1h', 'outbox.cleanup_interval' => -1);
$node->sql("UPDATE outbox.endpoint SET dedup_store = '$url'");
$node->sql("BEGIN; SELECT outbox_begin('m', 'sales'), outbox_commit(); COMMIT");
my $segment = $node->sql("SELECT segment FROM outbox.records WHERE msgid = 'm'");
my $of_m = $node->sql("SELECT key FROM outbox.record_$segment WHERE msgid = 'm'");
eventually { is_known($of_m) && $node->propagated eq 'all' } 'another id comes into the first store';
my $calls = $server->sql('SELECT last_value FROM calls', 'other');
$gate->query("SELECT pg_advisory_lock($calls + 1)");
$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $url =~ s{/postgres\?}{/other?}r ]}'");
eventually { waits_at($calls + 1) } '... and is about to come into the other one';
like($node->sql_error("SELECT outbox_forget('m', 'sales')"), qr/^55000: message "m" is not yet in the deduplication store/, '... it is not forgotten meanwhile');
$gate->query("SELECT pg_advisory_unlock($calls + 1)");
eventually { is_known($of_m, 'other') } 'the other store has it';
eventually { $node->sql("SELECT outbox_forget('m', 'sales')") eq 't' } '... now it is forgotten';
is($node->sql("BEGIN; SELECT outbox_begin('m', 'sales'); ROLLBACK"), 't', '... and new');
$node->set('outbox.retention' => '1s', 'outbox.cleanup_interval' => '100ms');
$gate->quit;

# A store that gets what it lacks while ids come, and is always some behind, has it some time later.
my $proxy = Proxy->new($server);
$proxy->delay(100);
$node->sql("BEGIN; SELECT outbox_begin('before', 'sales'), outbox_commit(); COMMIT");
$node->sql("UPDATE outbox.endpoint SET dedup_store = '@{[ $server->store_url('shard', $proxy) ]}'");
my $load = $node->start_load(clients => 16, scripts => [ <<'END' ]);
\set pause random(1, 100)
\sleep :pause ms
BEGIN;
SELECT outbox_begin(gen_random_uuid(), 'sales'), outbox_commit();
COMMIT;
END
eventually { $node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid = 'before'}) == 0 } 'records go while a store takes the place of another one, and ids come';
ok($load->is_running, '... while they do');
$load->stop;

done_testing();
