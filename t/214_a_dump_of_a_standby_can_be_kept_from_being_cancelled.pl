# A segment that is emptied is locked, and a standby replays that lock: there it cancels
# queries that read the table, as those of a dump, unless replay may wait or is paused.
# hot_standby_feedback does not help.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, init => { allows_streaming => 1 }, conf => <<'END');
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
END
$node->backup('base');
my $standby = Outbox->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nmax_standby_streaming_delay = '100ms'");
$standby->start;

sub empties { return $node->sql('SELECT sum(pg_relation_filenode(c.oid)::bigint) FROM pg_class c WHERE relname ~ $$^log_[0-9]$$'); }

# A session with the locks of a dump, while the segments on the primary rotate.
sub reader
{
	my $session = $standby->session;
	my $before = empties();

	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE outbox.log_0, outbox.log_1, outbox.log_2, outbox.log_3 IN ACCESS SHARE MODE');
	eventually { $node->sql(q{SELECT outbox_enqueue('d', 'x')}); empties() > $before + 2 } 'segments are emptied while a session reads on the standby';
	return $session;
}

sub has_survived { my ($session) = @_; return defined eval { $session->query_safe('SELECT count(*) FROM outbox.log_0') }; }

my $log = $standby->log_position;
my $session = reader();
eventually { $standby->log_since($log) =~ /due to conflict with recovery/ } '... which is cancelled';
eval { $session->quit };

$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = -1');
$standby->reload;
$session = reader();
ok(has_survived($session), '... and is not with max_standby_streaming_delay = -1');
$session->quit;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = '100ms'");
$standby->reload;
$standby->sql('SELECT pg_wal_replay_pause()');
$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
$session = reader();
ok(has_survived($session), '... nor while replay is paused');
$session->quit;
$standby->sql('SELECT pg_wal_replay_resume()');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

done_testing();
