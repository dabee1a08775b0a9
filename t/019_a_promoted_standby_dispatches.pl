# A standby accepts no messages and sends none; when it is promoted, it goes on where the
# old primary stopped.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $primary = Outbox->create('primary', redis => $redis, init => { allows_streaming => 1 }, conf => <<'END');
max_connections = 60
outbox.takeover_delay = '1s'
outbox.max_attempts = 1
END

$primary->backup('base');
my $standby = Outbox->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub handle
{
	my ($node, $n) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('m$n'); SELECT outbox_enqueue('d', '$n'); SELECT outbox_commit(); COMMIT");
	return;
}

handle($primary, $_) foreach 1 .. 3;
ok($primary->wait_until_sent, 'the primary sends');
# A dead message holds back a later one of its key.
sub held { my ($node) = @_; return $node->sql(q{SELECT string_agg(message_id || ' ' || state, ', ' ORDER BY id) FROM outbox.deferred WHERE state IN ('dead', 'held')}); }
$primary->sql(q{SELECT outbox_set_destination('keyed', on_dead => 'hold')});
$redis->refuse('keyed');
$primary->sql(qq{SELECT outbox_enqueue('keyed', '$_', message_id => '$_', key => 'k')}) foreach 'k1', 'k2';
eventually { held($primary) eq 'k1 dead, k2 held' } 'the primary holds a message back';
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

like($standby->sql_error(q{SELECT outbox_enqueue('d', 'x')}), qr/^25006/, 'outbox_enqueue on a standby');
like($standby->sql_error(q{BEGIN; SELECT outbox_begin('m9'); SELECT outbox_commit()}), qr/^25006/, 'outbox_begin on a standby');
is($standby->sql('SELECT count(*) FROM outbox.status'), 1, 'outbox.status answers there');
is($standby->sql('SELECT count(*) FROM outbox.records'), 3, '... and outbox.records');
eventually { $standby->sql('SELECT count(*) FROM outbox.pending') == 1 } '... and outbox.pending';
is(scalar($standby->dispatchers), 0, 'it has no dispatcher');

# The standby sends what the primary could not send any more.
$redis->stop;
handle($primary, $_) foreach 4 .. 6;
$primary->sql(q{SELECT outbox_enqueue('keyed', 'k3', message_id => 'k3', key => 'k')});
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$primary->stop('immediate');
$standby->promote;
ok($standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()'), 'the standby is promoted');
handle($standby, $_) foreach 7 .. 8;
is($standby->sql("SELECT outbox_begin('m$_')"), 'f', "it knows message $_") foreach 1, 6, 8;
$redis->start;
$redis->accept('keyed');
eventually { $redis->count('d') == 8 } 'it sends, when the lease of the old primary has run out';
is($redis->sequence('d'), '1 2 3 4 5 6 7 8', '... what was left and what is new, in order, none twice');
is(scalar($standby->dispatchers), 1, '... by one dispatcher');
eventually { held($standby) eq 'k1 dead, k2 held, k3 held' } 'it holds back what the primary held, and what came later';
is($standby->sql(q{SELECT outbox_retry('keyed')}), 1, 'the dead message is retried');
ok($standby->wait_until_sent, '... and all is sent');
is($redis->sequence('keyed'), 'k1 k2 k3', '... in order');

done_testing();
