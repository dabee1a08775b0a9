# When segments of records cannot be emptied because they are locked, or cannot be
# compacted because a page is damaged, or their rows of outbox.ring are locked, the ring
# does not run out of segments, the dispatcher does not end or wait, and messages are sent.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => $Compaction::small_segments);
my $current = q{SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'};

sub size_of { my ($segment) = @_; return $node->sql("SELECT pg_relation_size('outbox.record_$segment') / 8192"); }

prepare($node);

#
# The locks that pg_dump takes.
#
my $dump = $node->session;
$dump->query_safe('BEGIN; LOCK TABLE ' . join(', ', map { "outbox.record_$_" } 0 .. 11) . ' IN ACCESS SHARE MODE');
my @sizes;
foreach (1 .. 10)
{
	my $segment = $node->sql($current);
	fill($node, 1);
	push @sizes, size_of($segment);
}
cmp_ok($sizes[5], '<', 2 * $sizes[0], "the first half of the segments is small (blocks: @sizes)");
cmp_ok($sizes[9], '>', 4 * $sizes[0], '... then each is larger than the one before, so that the rest lasts');
cmp_ok($node->sql(q{SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND state = 'empty'}), '>', 0, '... and one is still empty');
$dump->query_safe('COMMIT');
$dump->quit;
eventually { is_at_rest($node) } 'when the locks are gone they are emptied';
is(unknown($node, 1, claimed($node), every => 10), 0, '... and nothing is forgotten');

#
# A page that cannot be read.
#
my ($damaged) = map { (split)[0] } $node->sql($current);
fill($node, 1);
eventually { is_at_rest($node) } 'a segment is full';
my $file = $node->data_dir . '/' . $node->sql("SELECT pg_relation_filepath('outbox.record_$damaged')");
$node->stop;
overwrite('U' x 64);
$node->start;
my $dispatcher = $node->dispatcher;
eventually { $node->status('problem') =~ /outbox\.record_$damaged: invalid page/ } 'a page cannot be read: status says so';
fill($node, 7);
$node->sql(q{SELECT outbox_enqueue('d', 'in spite of it')});
ok($node->wait_until_sent, 'messages are sent');
eventually { $node->sql("SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND state = 'quiet' AND segment <> $damaged") < 6 } 'the other segments are compacted';
is($node->sql("SELECT state || coalesce(compacted_into, -1) FROM outbox.ring WHERE ring = 'record' AND segment = $damaged"), 'quiet-1', '... and the damaged one stays what it is');
is($node->dispatcher, $dispatcher, 'it was one dispatcher all the time');
$node->sql("ALTER SYSTEM SET outbox.retention = '1s'");
$node->reload;
eventually { $node->sql('SELECT outbox_cleanup()'); $node->sql("SELECT state FROM outbox.ring WHERE ring = 'record' AND segment = $damaged") =~ /empty|current/ } 'when its time is over it is emptied';
eventually { $node->status('problem') eq '' } '... and nothing is wrong any more';
is($node->dispatcher, $dispatcher, '... with the same dispatcher');

#
# What cannot be read is looked into for an id that was forgotten long ago. What an
# administrator has written into outbox.ring is counted up to by nobody.
#
$node->sql("ALTER SYSTEM SET outbox.retention = '1h'");
$node->reload;
compact($node);
$node->process('forgotten');
my $holder = $node->sql(q{SELECT segment FROM outbox.records WHERE msgid = 'forgotten'});
$node->sql(q{SELECT outbox_forget('forgotten'); UPDATE outbox.forgotten SET forgotten_at = forgotten_at - interval '1 year'});
$node->sql("ALTER TABLE outbox.record_$holder DROP CONSTRAINT record_${holder}_pkey");
$node->sql(q{UPDATE outbox.ring SET level = 2147483647, generation = (SELECT max(generation) + 1 FROM outbox.ring) WHERE ring = 'history' AND state = 'quiet'});
eventually { $node->status('problem') =~ /which forgotten ids have expired: table "outbox.record_$holder" has no usable index/ } 'a segment that is to be looked into has no index: status says so';
$node->sql(q{SELECT outbox_enqueue('d', 'in spite of it')});
ok($node->wait_until_sent, '... messages are sent');
$node->sql("ALTER TABLE outbox.record_$holder ADD PRIMARY KEY (key)");
eventually { $node->status('problem') eq '' } '... it has one again, and nothing is wrong any more';
is($node->sql('SELECT count(*) FROM outbox.forgotten'), 1, '... what was forgotten is kept as long as its id');
is($node->dispatcher, $dispatcher, '... with the same dispatcher');
$node->sql(q{SET statement_timeout = '2min'; CALL fill(1); SELECT outbox_cleanup()});
is($node->dispatcher, $dispatcher, 'a segment of the history has the greatest level that there can be: compaction ends');
$node->sql(q{SELECT outbox_enqueue('d', 'in spite of that')});
ok($node->wait_until_sent, '... and messages are sent');
$node->sql(q{UPDATE outbox.ring SET level = 1 WHERE level > 1});

#
# While dispatch is off, records are written all the same.
#
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
my $segment = $node->sql($current);
my $last = claimed($node);
$node->sql("SELECT claim($last + 1, $last + 3000)");
eventually { $node->sql($current) != $segment } '... and another segment is written when one is full';

#
# Rows of outbox.ring that another session has locked, as the apply worker of a subscription
# does. The dispatcher takes other segments, or tries again.
#
$node->set('outbox.dispatch' => 'on', log_lock_waits => 'on', deadlock_timeout => '20ms');
eventually { is_at_rest($node) } 'dispatch is on again';
my $locker = $node->session;
my $writer = $node->session;
my $log = $node->log_position;
my $empty = $node->sql(q{SELECT min(segment) FROM outbox.ring WHERE ring = 'record' AND state = 'empty'});
lock_rows("state = 'empty' AND segment = $empty");
$writer->query_safe(q{BEGIN; SELECT outbox_begin('open'), outbox_commit()});
$segment = $node->sql($current);
$node->sql(q{SET statement_timeout = '2min'; CALL fill(1)});
isnt($node->sql($current), $empty, 'the row of an empty segment is locked: another one becomes current');
$locker->query_safe('COMMIT');
lock_rows("segment = $segment");
$writer->query_safe('COMMIT');
goes_on();
is(state_of($segment), 'sealed', 'that of a sealed one is locked: it becomes quiet later');
$redis->pause;
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$locker->query_safe('COMMIT');
eventually { state_of($segment) eq 'quiet' } '... now';
lock_rows("segment = $segment");
$redis->resume;
goes_on();
is(state_of($segment), 'quiet', 'that of a quiet one is locked: that it is published is noted later');
$node->set('outbox.retention' => '1s');
$locker->query_safe('COMMIT');
eventually { state_of($segment) eq 'quiet, published' } '... now';
lock_rows("segment = $segment");
my $since = time;
wait_until { time > $since + 1 };
goes_on();
is(state_of($segment), 'quiet, published', '... and it is retired later');
$locker->query_safe('COMMIT');
eventually { state_of($segment) eq 'empty' } '... now';
$node->set('outbox.retention' => '1h');

# Tables that keep even readers out, as while VACUUM FULL rewrites them.
$locker->query_safe('BEGIN; LOCK TABLE ' . join(', ', (map { "outbox.record_$_" } 0 .. 11), map { "outbox.history_$_" } 0 .. 23) . ' IN ACCESS EXCLUSIVE MODE');
$node->sql(q{SET statement_timeout = '1min'; SELECT count(outbox_cleanup()) FROM generate_series(1, 2)});
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, 'all tables of records are locked: messages are sent');
$locker->query_safe('COMMIT');

# Tables that keep writers out, as while an index on them is created.
$locker->query_safe('BEGIN; LOCK TABLE ' . join(', ', 'outbox.compacted', 'outbox.forgotten', map { "outbox.history_$_" } 0 .. 23) . ' IN SHARE MODE');
$node->sql(q{SET statement_timeout = '2min'; CALL fill(7)});
$node->sql(q{SET statement_timeout = '1min'; SELECT count(outbox_cleanup()) FROM generate_series(1, 2)});
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, 'nobody may write to tables of the history: messages are sent');
$locker->query_safe('COMMIT; BEGIN; LOCK TABLE outbox.ring IN SHARE MODE');
$node->sql(q{SET statement_timeout = '1min'; SELECT count(outbox_cleanup()) FROM generate_series(1, 2)});
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, '... nor into outbox.ring: messages are sent');
$locker->query_safe('COMMIT');
eventually { is_at_rest($node) } '... and segments are compacted afterwards';
$locker->query_safe('BEGIN; LOCK TABLE ' . $node->sql(q{SELECT string_agg('outbox.window_' || segment, ', ') FROM outbox.ring WHERE ring = 'log' AND state <> 'current'}) . ' IN SHARE MODE');
$node->set('outbox.replay_window' => '2s');
$node->sql('SELECT pg_sleep(1.1)');
$node->sql(q{SET statement_timeout = '1min'; SELECT count(outbox_cleanup()) FROM generate_series(1, 2)});
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, '... nor into tables of windows but for the current one: messages are sent');
$segment = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
$locker->query_safe('COMMIT');
eventually { $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'}) != $segment } '... and later into another';
$node->set('outbox.replay_window' => '1d');

# All rows, now and then.
my $pid = $locker->query_safe('SELECT pg_backend_pid()');
$locker->query_until(qr/began/, <<'END');
\echo began
DO $$ BEGIN LOOP
	PERFORM FROM outbox.ring FOR UPDATE;
	PERFORM pg_sleep(0.05);
	COMMIT;
	PERFORM pg_sleep(0.05);
END LOOP; END $$;
END
my $compacted = compacted_keys();
fill($node, 7);
eventually { is_at_rest($node) && compacted_keys() > $compacted } 'all rows are locked half of the time: segments are compacted';
$node->sql("SELECT pg_terminate_backend($pid)");
eval { $locker->quit };
unlike($node->log_since($log), qr/\[$dispatcher\].* still waiting for/, 'the dispatcher has not waited for any lock');
is($node->dispatcher, $dispatcher, 'it is the same one');

# More sources than a ring has segments, written by hand.
$node->sql(<<'END');
UPDATE outbox.ring SET state = 'quiet', compacted_into = 0, published_at = now() WHERE ring = 'history' AND segment > 0 OR ring = 'record' AND state = 'empty';
UPDATE outbox.ring SET state = 'filling', generation = (SELECT max(generation) + 1 FROM outbox.ring) WHERE ring = 'history' AND segment = 0;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher';
END
eventually { $node->status('problem') =~ /outbox.ring has sources of two rings/ } 'an administrator has named segments of two rings as sources: status says so';
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
ok($node->wait_until_sent, '... messages are sent');
unlike($node->log_since($log), qr/terminated by signal/, '... and no process has crashed');

# Locks rows of the ring of records, until COMMIT.
sub lock_rows
{
	my ($condition) = @_;
	$locker->query_safe("BEGIN; SELECT FROM outbox.ring WHERE ring = 'record' AND $condition FOR UPDATE");
	return;
}

# Rounds of cleanup end, and messages are sent after them.
sub goes_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql(q{SET statement_timeout = '1min'; SELECT count(outbox_cleanup()) FROM generate_series(1, 2)});
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	ok($node->wait_until_sent, 'a row is locked: messages are sent');
	return;
}

sub state_of
{
	my ($n) = @_;
	return $node->sql("SELECT concat_ws(', ', state, CASE WHEN published_at IS NOT NULL THEN 'published' END) FROM outbox.ring WHERE ring = 'record' AND segment = $n");
}

sub compacted_keys { return $node->sql(q{SELECT coalesce(sum(keys), 0) FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'}); }

sub overwrite
{
	my ($bytes) = @_;
	open my $handle, '+<', $file or die "$file: $!";
	print $handle $bytes;
	close $handle or die $!;
	return;
}

done_testing();
