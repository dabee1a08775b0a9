# The disk fails for a while, so that bodies cannot be read. Their messages wait as for a
# destination that refuses them; those that are dead by then can be retried as long as the
# log has their bodies. Whatever is changed meanwhile, order is kept.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils qw(slurp_file);
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
autovacuum = off
outbox.replay_window = '1h'
outbox.max_attempts = 1000000
outbox.retry_delay = '50ms'
outbox.retry_max_delay = '50ms'
END
my ($file, $content);

sub write_file
{
	my ($bytes) = @_;
	open my $pages, '>', $file or die "open: $!";
	binmode $pages;
	print {$pages} $bytes;
	close $pages;
	return;
}

# Makes it impossible to read bodies that are stored out of line; dispatch is off then.
sub fail_to_read
{
	my (@enqueue) = @_;
	$node->set('outbox.dispatch' => 'off');
	eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
	$node->sql("SELECT outbox_enqueue($_)") foreach @enqueue;
	$node->sql('CHECKPOINT');
	$file = $node->data_dir . '/' . $node->sql(q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class, outbox.ring
		WHERE pg_class.oid = format('outbox.log_%s', segment)::regclass AND ring = 'log' AND state = 'current'});
	$node->stop;
	$content = slurp_file($file);
	write_file('');
	$node->start;
	return;
}

my $large = q{(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n)};
my $body = $node->sql("SELECT $large");
my $waits = q{SELECT attempts > 1 AND body IS NULL AND last_error ~ 'could not read' FROM outbox.deferred WHERE state};

# For a while.
fail_to_read("'d', $large, '{\"a\": 1}', message_id => 'unread'", q{'d', 'behind it'}, q{'e', 'of another destination'},
	"'later', $large, deliver_at => now() + interval '1 hour', message_id => 'unread later'");
$node->set('outbox.dispatch' => 'on');
eventually { $redis->count('e') == 1 } 'a body cannot be read: other destinations go on';
eventually { $node->sql("$waits = 'waiting' AND dest = 'd' ORDER BY id LIMIT 1") eq 't' } '... and the message is tried again';
eventually { $node->sql("$waits = 'scheduled'") eq 't' } '... also one whose time has not come';
like($node->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'destination'}), qr/could not read/, '... which status tells');
is($redis->count('d'), 0, '... and nothing overtakes it');
my $dispatcher = $node->dispatcher;
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_fails_like([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ],
	qr/Dumping the contents of table "log_0" failed.*ERROR:  could not read block/s, 'a dump fails as long as a message that waits cannot be read');
write_file($content);
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ], 'it can be read, but waits still: pg_dump');
my @dumped = slurp_file($dump) =~ /\t(unread(?: later)?)(?=\t)/g;
is(join(', ', @dumped), 'unread, unread later', '... takes it along, once');
$node->set('outbox.dispatch' => 'on');
eventually { $redis->count('d') == 2 } 'it can be read: it is sent';
is($redis->sequence('d'), "$body behind it", '... whole, and in its order');
is($redis->command('XRANGE', 'd', '-', '+')->[0][1][-1], '1', '... with its headers');
eventually { $node->sql(q{SELECT state = 'scheduled' AND next_attempt > now() + interval '55 min' AND body IS NOT NULL AND log_tx IS NULL FROM outbox.deferred WHERE dest = 'later'}) eq 't' }
	'what is scheduled waits for its time';
is($redis->count('later'), 0, '... and is not sent');
ok($node->wait_until_sent, 'nothing else is left');
is($node->dispatcher, $dispatcher, '... and no dispatcher ended');

# Until the message is dead.
$node->set('outbox.max_attempts' => 2);
fail_to_read("'d', $large, message_id => 'retried'", "'d', $large, message_id => 'lost'");
$node->set('outbox.dispatch' => 'on');
eventually { $node->sql(q{SELECT count(*) FROM outbox.dead_letters WHERE body IS NULL}) == 2 } 'bodies cannot be read for long: the messages are dead';
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ], '... a dump leaves them out');
is($node->sql(q{SELECT outbox_retry('d', 'retried')}), 1, '... they can be retried');
eventually { $node->sql(q{SELECT count(*) FROM outbox.dead_letters WHERE body IS NULL}) == 2 } '... which fails as yet';
write_file($content);
is($node->sql(q{SELECT outbox_retry('d', 'retried')}), 1, 'they could be read again');
eventually { $redis->count('d') == 3 } '... and one that is retried is sent';
is(($redis->bodies('d'))[2], $body, '... whole');

# What is deferred is read again because of such a body when a destination has just been set to hold.
$node->set('outbox.retry_delay' => '1h', 'outbox.retry_max_delay' => '1h');
$redis->refuse('keyed');
$node->sql(q{SELECT outbox_enqueue('keyed', 'dead', key => 'k')});
eventually { $node->sql(q{SELECT attempts FROM outbox.deferred WHERE dest = 'keyed'}) == 1 } 'a message is refused';
$node->sql(q{UPDATE outbox.deferred SET state = 'dead' WHERE dest = 'keyed'});
$node->sql(q{SELECT outbox_enqueue('keyed', 'waiting', key => 'k')});
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE dest = 'keyed' AND attempts = 1}) == 2 } '... and one behind it';
$redis->accept('keyed');
fail_to_read(q{'keyed', 'new', key => 'k'}, "'f', $large, message_id => 'unread'");
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
my $locker = $node->session;
$locker->query_safe('BEGIN; LOCK TABLE outbox.deferred IN SHARE MODE');
$node->set('outbox.dispatch' => 'on');
eventually { $node->sql(q{SELECT count(*) FROM pg_locks WHERE relation = 'outbox.deferred'::regclass AND NOT granted}) == 1 } 'the dispatcher waits';
$node->sql(q{SELECT outbox_set_destination('keyed', on_dead => 'hold')});
$locker->query_safe('COMMIT');
$locker->quit;
my $states = q{SELECT string_agg(convert_from(body, 'UTF8') || ' ' || state, ', ' ORDER BY id) FROM outbox.deferred WHERE dest = 'keyed'};
eventually { $node->sql($states) eq 'dead dead, waiting held, new held' } 'all that is behind the dead message is held' or diag($node->sql($states), ' ', $redis->sequence('keyed'));
is($redis->count('keyed'), 0, '... and nothing overtakes it');
write_file($content);
$node->set('outbox.retry_delay' => '50ms', 'outbox.retry_max_delay' => '50ms');
$node->sql(q{SELECT outbox_retry('keyed'); UPDATE outbox.deferred SET next_attempt = now() WHERE dest = 'f'});
eventually { $redis->sequence('keyed') eq 'dead waiting new' } '... until it is retried';
eventually { $redis->count('f') == 1 } '... and what could not be read is sent';

# The log is emptied while an administrator has not committed a retry of the message that is still to be read from it.
my $file_of_log = q{SELECT pg_relation_filenode(format('outbox.log_%s', log_segment)::regclass) FROM outbox.deferred WHERE log_tx IS NOT NULL};
my $before = $node->sql($file_of_log);
my $session = $node->session;
$session->query_safe(q{BEGIN; SELECT outbox_retry('d')});
$node->set('outbox.replay_window' => '1s', 'outbox.cleanup_interval' => '100ms');
eventually { $node->sql(q{SELECT outbox_enqueue('e', 'x')}); $node->sql($file_of_log) ne $before } 'a retry that is not committed does not keep the log from being emptied';
$session->query_safe('ROLLBACK');
$session->quit;
eventually { $node->sql(q{SELECT outbox_enqueue('e', 'x')}); $node->sql(q{SELECT log_tx IS NULL FROM outbox.dead_letters JOIN outbox.deferred USING (id)}) eq 't' } 'the log has rotated';
is($node->sql(q{SELECT outbox_retry('d')}), 0, '... so the other one cannot be retried any more');
like($node->sql(q{SELECT last_error FROM outbox.dead_letters}), qr/could not read/, '... which says why');

done_testing();
