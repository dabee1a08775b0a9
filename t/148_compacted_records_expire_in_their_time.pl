# What was compacted expires like any record: as a whole, not before the retention of its
# endpoint has passed, and its space is freed. Until then outbox_wait() knows it;
# outbox.records does not list it any more.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<"END");
$Compaction::small_segments
outbox.cleanup_interval = -1
END
prepare($node);

sub claim_for
{
	my ($endpoint, @msgids) = @_;
	$node->sql(join '', map { "BEGIN; SELECT outbox_begin('$_', '$endpoint'); SELECT outbox_commit(); COMMIT;" } @msgids);
	return;
}

# Six segments that are full are compacted, the oldest first.
sub now { return $node->sql('SELECT extract(epoch FROM clock_timestamp())'); }

#
# What is compacted is remembered, but not its name.
#
$node->sql(q{SELECT outbox_create_endpoint('brief', retention => '5 minutes')});
$redis->refuse('bad');
claim_for('default', 'plain');
claim_for('brief', map { "b$_" } 1 .. 100);
$node->sql(q{BEGIN; SELECT outbox_begin('sent'); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT});
$node->sql(q{BEGIN; SELECT outbox_begin('refused'); SELECT outbox_enqueue('bad', 'x'); SELECT outbox_commit(); COMMIT});
ok($node->poll_query_until('postgres', 'SELECT deferred = 1 FROM outbox.status'), 'a message is refused');
is($node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid IN ('plain', 'sent', 'refused', 'b1')}), 4, 'records are listed');
compact($node);
is($node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid IN ('plain', 'sent', 'refused', 'b1')}), 0, '... not so when they are compacted');
claim_for('default', 'later');
is($node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid = 'later'}), 1, '... as those that came later are not');
ok(!is_new($node, 'plain'), 'what is compacted is known');
ok(!is_new($node, 'b1', 'brief'), '... for its endpoint');
ok(is_new($node, 'b1'), '... and for no other');
is($node->sql(q{SELECT outbox_wait('plain')}), 't', 'outbox_wait() does not wait for a compacted record without messages');
is($node->sql(q{SELECT outbox_wait('sent')}), 't', '... nor for one whose message was sent');
is($node->sql(q{SELECT outbox_wait('refused', timeout => '100 ms')}), 'f', '... but for one whose message was refused');
is($node->sql(q{SELECT outbox_wait('never')}), '', '... and knows what is not there');
$redis->accept('bad');
is($node->sql(q{SELECT outbox_wait('refused', timeout => '3 min')}), 't', '... until that is sent too');

#
# An endpoint whose own retention is shorter than that of others.
#
is($node->sql('SELECT outbox_cleanup()'), 0, 'nothing has expired yet');
$node->sql(q{SELECT outbox_alter_endpoint('brief', retention => '1 s')});
eventually { is_new($node, 'b1', 'brief') } 'a shorter retention of its endpoint lets a compacted record expire';
ok(!is_new($node, 'plain'), '... and no other one');
is($node->sql('SELECT outbox_cleanup()'), 0, '... though its key is still there');

# A second record of the same key is compacted with the first.
claim_for('brief', map { "b$_" } 1 .. 100);
ok(!is_new($node, 'b1', 'brief'), 'claimed again it is known');
compact($node);
$node->sql(q{SELECT outbox_alter_endpoint('brief', retention => '5 minutes')});
ok(!is_new($node, "b$_", 'brief'), '... also when it is compacted again') foreach 1, 100;

#
# The longest retention of all endpoints.
#
$node->sql(q{SELECT outbox_drop_endpoint('brief')});

# Segments of one merge that were written at different times expire with the youngest.
my @notes;
foreach my $segment (1 .. 8)
{
	$node->sql('SELECT pg_sleep(1.5)') if $segment == 4;
	push @notes, [ now(), claimed($node) ];
	fill($node, 1);
}
eventually { is_at_rest($node) } 'some are compacted';
my $compacted = $node->sql(q{SELECT min(substr(msgid, 2)::bigint) - 1 FROM outbox.records WHERE msgid ~ '^m[0-9]'});
my ($last) = grep { $_->[1] < $compacted - 50 } reverse @notes;
ok($last, "... up to number $compacted") or diag join ', ', map { "@$_" } @notes;

# However long that took, some seconds are left to ask in. An answer that comes later says
# nothing.
my $retention = int(now() - $last->[0]) + 8;
$node->set('outbox.retention' => "${retention}s");
my ($asked, $forgotten) = (0, 0);
for (;;)
{
	$node->sql('SELECT outbox_cleanup()');
	my $unknown = unknown($node, $compacted - 50, $compacted, every => 10);
	last if now() >= $last->[0] + $retention;
	$forgotten += $unknown;
	$asked++;
}
my $claimed = claimed($node);
is($forgotten, 0, "no record expires before its time (asked $asked times)");

eventually { $node->sql('SELECT outbox_cleanup()'); sizes($node, 'history') + sizes($node, 'record') == 0 } 'then all expire, and the space is given back';
is(unknown($node, 1, $claimed, every => 100), int(($claimed + 99) / 100), '... and all are new');
ok(is_new($node, 'plain'), '... also the first');

#
# What outbox_cleanup() returns.
#
$node->set('outbox.retention' => '1h');
fill($node, 8);
eventually { is_at_rest($node) && compacted_segments($node) } 'records are compacted once more';
my $kept = live_keys($node);
my $monitor = $node->session;
$monitor->query_safe('BEGIN; SELECT * FROM outbox.endpoints');
$node->set('outbox.retention' => '1s');
my $removed = 0;
eventually { $removed += $node->sql('SELECT outbox_cleanup()'); live_keys($node) == 0 } 'they expire';
is($removed, $kept, "outbox_cleanup() returned their number ($kept)");
eventually { sizes($node, 'history') + sizes($node, 'record') == 0 } 'no space is left, though a transaction is open that has read outbox.endpoints';
$monitor->quit;

done_testing();
