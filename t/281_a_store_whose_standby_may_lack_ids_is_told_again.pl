# An id does not count as added to a PostgreSQL store if somebody there cancels the wait for the
# synchronous standby: it is added again until the standby has it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '10min'\noutbox.connect_timeout = '10min'");
my $server = Outbox->create('store', init => { allows_streaming => 1 }, conf => "outbox.redis_url = 'redis://127.0.0.1:1'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store'); ALTER ROLE shard SET client_min_messages = error});
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $server->store_url('shard') . "')");

# The transactions of our sessions there that wait for the standby.
sub waiting { return $server->sql(q{SELECT string_agg(pid || ' ' || xact_start, ',') FROM pg_stat_activity WHERE usename = 'shard' AND wait_event = 'SyncRep'}); }
sub cancel { return $server->sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'shard'}); }

eventually { $node->process('m 0', undef, 'stored') && $node->propagated eq 'all' } 'an id comes to the store';
$server->require_missing_standby;
$node->sql(q{BEGIN; SELECT outbox_begin('m 1', 'stored'), outbox_commit(); COMMIT});
my $first = '';
eventually { ($first = waiting()) ne '' } 'the store waits for its standby with another one';
cancel();
eventually { $node->propagated eq 'all' || waiting() !~ /^(?:|\Q$first\E)$/ } '... somebody cancels that';
isnt($node->propagated, 'all', '... and it does not count as added: the store waits with it once more');
$first = waiting();
cancel();
eventually { $node->propagated eq 'all' || waiting() !~ /^(?:|\Q$first\E)$/ } '... that is cancelled, too';
isnt($node->propagated, 'all', '... and it is told once more');
$server->set(synchronous_standby_names => '');
eventually { $node->propagated eq 'all' && $node->status('problem') eq '' } 'then no standby is waited for: the id is there';

# The same holds for one that is forgotten: that fails, and the next call finds it removed already.
my $session = $node->session;
my $pid = $session->query_safe('SELECT pg_backend_pid()');
sub calls_again { return $node->sql("SELECT query LIKE '% AS again%' FROM pg_stat_activity WHERE pid = $pid") eq 't'; }
sub is_answered { return $node->sql("SELECT state FROM pg_stat_activity WHERE pid = $pid") eq 'idle'; }
$server->require_missing_standby;
$session->query_until(qr/asked/, "\\echo asked\nSELECT outbox_forget('m 0', 'stored');\nSELECT outbox_forget('m 0', 'stored') AS again;\n");
eventually { ($first = waiting()) ne '' } 'an id is forgotten: the store waits for its standby';
cancel();
eventually { calls_again() && (waiting() !~ /^(?:|\Q$first\E)$/ || is_answered()) } '... somebody cancels that';
ok(!is_answered(), '... and the store waits with it once more');
$server->set(synchronous_standby_names => '');
eventually { is_answered() } '... until it waits for no standby';
$session->quit;

done_testing();
