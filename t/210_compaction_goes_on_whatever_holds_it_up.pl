# When segments of records cannot be emptied because they are locked, or cannot be
# compacted because a page is damaged, the ring does not run out of segments, the
# dispatcher does not end, and messages are sent.

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
# While dispatch is off, records are written all the same.
#
$node->sql("ALTER SYSTEM SET outbox.retention = '1h'");
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
my $segment = $node->sql($current);
my $last = claimed($node);
$node->sql("SELECT claim($last + 1, $last + 3000)");
eventually { $node->sql($current) != $segment } '... and another segment is written when one is full';

sub overwrite
{
	my ($bytes) = @_;
	open my $handle, '+<', $file or die "$file: $!";
	print $handle $bytes;
	close $handle or die $!;
	return;
}

done_testing();
