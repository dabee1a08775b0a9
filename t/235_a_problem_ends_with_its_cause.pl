# A problem is not shown any more when its cause is gone, also if nothing happens that
# would show that: no message is sent, no segment changes.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "$Compaction::small_segments\noutbox.command_timeout = '300ms'\noutbox.replay_window = '1h'");
prepare($node);

# Redis hangs: the answer to the only message is lost, but not the message.
$node->sql(q{SELECT outbox_enqueue('d', 'first')});
eventually { $redis->count('d') == 1 } 'a message is sent';
my $log = $node->log_position;
$redis->pause;
$node->sql(q{SELECT outbox_enqueue('d', 'second')});
eventually { $node->log_since($log) =~ /Redis cannot be used/ } 'Redis hangs';
$redis->resume;
eventually { $redis->count('d') == 2 } 'it goes on, and finds the message';
eventually { $node->status('problem') eq '' } '... then nothing is wrong, although nothing is left to be sent';
is($redis->sequence('d'), 'first second', '... each came once');

# While dispatch is off, an administrator repairs something else.
$node->sql('SELECT outbox_pause()');
eventually { $node->status('problem') =~ /paused/ } 'everything is paused';
$node->set('outbox.dispatch' => 'off');
eventually { $node->sql('SELECT count(*) FROM outbox.problems') == 2 } 'dispatch is off, too';
$node->sql('SELECT outbox_resume()');
eventually { $node->sql(q{SELECT string_agg(kind, ' ') FROM outbox.problems}) eq 'dispatch off' } 'it goes on: dispatch is off still';
$node->set('outbox.dispatch' => 'on');
eventually { $node->status('problem') eq '' } '... and on again';

# The state of a segment cannot be written for a while, as when the disk is full.
$node->sql('ALTER TABLE outbox.ring ADD CONSTRAINT full_disk CHECK (published_at IS NULL) NOT VALID');
fill($node, 1);
eventually { $node->status('problem') =~ /full_disk/ } 'what was published cannot be noted';
$node->sql('ALTER TABLE outbox.ring DROP CONSTRAINT full_disk');
eventually { $node->sql(q{SELECT bool_and(published_at IS NOT NULL) FROM outbox.ring WHERE state = 'quiet'}) eq 't' } 'it can be';
eventually { $node->status('problem') eq '' } '... and nothing is wrong any more, although the segment lives for long';

# A file that a filter is built from is away for a while.
eventually { is_at_rest($node) } 'no segment is about to change';
my $segment = $node->sql(q{SELECT min(segment) FROM outbox.ring WHERE ring = 'record' AND state = 'quiet'});
my $file = $node->data_dir . '/' . $node->sql("SELECT pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = 'outbox.record_$segment'::regclass");
$node->stop;
rename $file, "$file.away" or die "$file: $!";
$node->start;
eventually { $node->status('problem') =~ /could not build the filter of outbox\.record_$segment/ } 'a filter cannot be built';
rename "$file.away", $file or die "$file: $!";
eventually { $node->status('problem') eq '' } '... and is built when it can be, although no segment has changed';

# So is that of an empty segment, or of the one that is written, on which nothing depends now.
foreach my $case ([ 'history', 'empty', 'compact' ], [ 'record', 'current', '(measure|clean up)' ])
{
	my ($ring, $state, $work) = @$case;
	my $table = $node->sql("SELECT 'outbox.' || ring || '_' || min(segment) FROM outbox.ring WHERE ring = '$ring' AND state = '$state' GROUP BY ring");
	my $away = $node->data_dir . '/' . $node->sql("SELECT pg_relation_filepath('$table')");

	$node->stop;
	rename $away, "$away.away" or die "$away: $!";
	$node->start;
	eventually { $node->status('problem') =~ /could not $work $table: / } "the file of $table, which is $state, is away";
	my $dispatcher = $node->dispatcher;
	$node->sql(q{SELECT outbox_enqueue('d', 'in spite of it')});
	ok($node->wait_until_sent, '... messages are sent');
	rename "$away.away", $away or die "$away: $!";
	eventually { $node->status('problem') eq '' } '... it is there again, and nothing is wrong, although nothing has changed';
	is($node->dispatcher, $dispatcher, '... with the same dispatcher');
}

# No merge can begin for a while, into whatever segment.
$node->sql(q{ALTER TABLE outbox.ring ADD CONSTRAINT full_disk CHECK (state <> 'filling') NOT VALID});
$log = $node->log_position;
my @failed;
my $took = seconds
{
	fill($node, 7);
	eventually { $node->status('problem') =~ /full_disk/ } 'no merge can begin';
	$node->sql('SELECT outbox_cleanup()');
	@failed = $node->log_since($log) =~ /could not compact outbox\.(history_\d+)/g;
};
cmp_ok(scalar @failed, '<=', 1 + $took / 10, "... one segment fails in ten seconds, not all (@failed)");
$node->sql('ALTER TABLE outbox.ring DROP CONSTRAINT full_disk');
eventually { scalar compacted_segments($node) } 'a merge succeeds';
eventually { $node->status('problem') eq '' } '... and nothing is wrong any more, although the segment that has failed was not tried again';

done_testing();
