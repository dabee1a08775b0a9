# After each reading of what is deferred the dispatcher rests as long as that took. What
# others change meanwhile it does not know yet; the messages that wait keep their order, and
# what is due of other destinations is sent, all the same.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'CONF');
outbox.max_attempts = 1
outbox.retry_delay = '3s'
outbox.retry_max_delay = '3s'
CONF
my $session = $node->session;

sub enqueue { my ($dest, $key, @bodies) = @_; $node->sql("SELECT outbox_enqueue('$dest', '$_', message_id => 'id $_', key => $key)") foreach @bodies; return; }
sub state_of { return $node->sql("SELECT state || ' ' || attempts FROM outbox.deferred WHERE message_id = 'id $_[0]'"); }

# Returns when the first entry of a stream was added, in milliseconds.
sub sent_at { return $redis->command('XRANGE', $_[0], '-', '+', 'COUNT', 1)->[0][0] =~ s/-.*//r; }

# Has what is deferred read again, which takes long because of a lock, after these statements.
sub read_slowly
{
	my ($statements) = @_;

	$session->query_safe("BEGIN; LOCK TABLE outbox.deferred IN SHARE MODE; $statements");
	$node->sql(q{SELECT outbox_set_destination('unknown', maxlen => 1)});
	eventually { $node->sql(q{SELECT count(*) FROM pg_locks WHERE relation = 'outbox.deferred'::regclass AND NOT granted}) == 1 } 'the dispatcher reads what is deferred';
	sleep 8;
	$session->query_safe('COMMIT');
	enqueue('d', 'NULL', 'read');
	eventually { ($redis->bodies('d'))[-1] eq 'read' } '... which took long';
	return;
}

# One message dies again, and holds back one that was retried meanwhile: others wait nevertheless.
$redis->refuse('holding');
enqueue('holding', "'a'", 'a1', 'a2');
eventually { $node->status('dead') == 2 } 'messages are dead';
$node->sql(q{SELECT outbox_set_destination('holding', on_dead => 'hold')});
$node->set('outbox.max_attempts' => 2);
read_slowly(q{SELECT outbox_retry('holding', 'id a1')});
eventually { state_of('a1') eq 'waiting 1' } 'one of them is retried';
enqueue('holding', "'b'", 'b1');
eventually { state_of('b1') eq 'waiting 0' } 'another one waits behind it';
is($node->sql(q{SELECT outbox_retry('holding', 'id a2')}), 1, 'the other dead one is retried');
eventually { state_of('a1') eq 'dead 2' } 'the first one dies again';
$redis->accept('holding');
enqueue('holding', "'b'", 'b2');
eventually { $redis->count('holding') == 2 } 'those of the other key are sent';
is_deeply([ $redis->bodies('holding') ], [ 'b1', 'b2' ], '... in order');

# A message that waits is given another destination, and is due before that is known.
read_slowly('SELECT');
$redis->refuse('former');
enqueue('former', 'NULL', 'directed');
eventually { state_of('directed') eq 'waiting 1' } 'a message waits';
my $log = $node->log_position;
$node->sql(q{UPDATE outbox.deferred SET dest = 'new' WHERE dest = 'former'});
eventually { $redis->count('new') == 1 } '... and is sent to the destination that an administrator has written into its row';
unlike($node->log_since($log), qr/was terminated by signal/, '... without a crash');

# A message that is to be let go is locked for long: what is due elsewhere is sent.
$redis->refuse($_) foreach 'locked', 'dead';
$node->sql(q{SELECT outbox_set_destination('locked', on_dead => 'hold')});
enqueue('locked', 'NULL', 'l1', 'l2');
enqueue('dead', 'NULL', 'r1');
eventually { $node->sql(q{SELECT string_agg(state, ' ' ORDER BY id) FROM outbox.deferred WHERE dest IN ('locked', 'dead') AND state <> 'returned'}) eq 'dead held dead' } 'a dead message holds back another one';
$redis->accept($_) foreach 'locked', 'dead';
my $administrator = $node->session;
$administrator->query_safe(q{BEGIN; SELECT FROM outbox.deferred WHERE message_id = 'id l2' FOR UPDATE});
read_slowly(q{SELECT outbox_discard('locked', 'id l1')});
$node->sql(q{SELECT outbox_retry('dead', 'id r1'), outbox_enqueue('later', 'x', deliver_at => clock_timestamp() + interval '2 s')});
eventually { $redis->count('dead') == 1 && $redis->count('later') == 1 } 'messages that are retried and due are sent while a held one is locked';
cmp_ok(sent_at('later'), '<', sent_at('dead'), '... what is due before what is deferred is read again');
is($redis->count('locked'), 0, '... and the locked one is not');
$administrator->query_safe('ROLLBACK');
eventually { $redis->count('locked') == 1 } '... until it is locked no more';
$_->quit foreach $session, $administrator;

done_testing();
