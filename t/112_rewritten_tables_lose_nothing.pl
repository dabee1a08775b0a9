# VACUUM FULL and CLUSTER may move the rows of a window while it is being published, and what
# ALTER TABLE rewrites is not seen by older snapshots.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.batch_size = 10\noutbox.command_timeout = '60s'\nrestart_after_crash = on");
my $sent = 0;

sub enqueue
{
	my ($count) = @_;
	my $first = $sent + 1;

	$sent += $count;
	$node->sql("SELECT count(outbox_enqueue('d', i::text)) FROM generate_series($first, $sent) i");
	return;
}

sub log_tables { return split /\n/, $node->sql(q{SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND oid::regclass::text ~ '^outbox\.(log|window)_\d+$'}); }

# Half of what is in the tables was aborted, so that the other rows are moved.
sub abort
{
	$node->sql(q{BEGIN; SELECT count(outbox_enqueue('aborted', 'x')) FROM generate_series(1, 3000) i; ROLLBACK});
	return;
}

# Makes Redis hang while a window of that many messages is published. If it hangs while the lease is renewed
# instead, so that no window is opened, this is tried again.
sub hang_amid_a_window
{
	my ($count) = @_;

	return wait_until
	{
		$redis->resume;
		$node->wait_until_sent;
		$redis->pause;
		enqueue($count);
		my $until = time + 10;
		wait_until { $node->status('dispatcher_state') eq 'publishing' || time > $until };
		$node->status('dispatcher_state') eq 'publishing';
	};
}

# Nearly all of a table was aborted, so that the next rows are at places behind its new end.
abort();
ok(hang_amid_a_window(200), 'a table of which little is left: a window is being published');
my $log = $node->log_position;
$node->sql("VACUUM FULL $_") foreach log_tables();
$redis->resume;
ok($node->wait_until_sent, '... it is to its end');
is($redis->sequence('d'), join(' ', 1 .. $sent), '... in order, none lost, none twice');
is($node->status('deferred'), 0, '... no message is taken for one that cannot be read');
unlike($node->log_since($log), qr/could not read block/, '... for it is known that they have moved');

foreach my $command ('VACUUM FULL %s', 'CLUSTER %s USING log_0_tx_idx', 'ALTER TABLE %s SET TABLESPACE pg_default; VACUUM FULL %1$s')
{
	abort();
	ok(hang_amid_a_window(8000), "$command: a window is being published");
	my @tables = $command =~ /log_0/ ? 'outbox.log_0' : log_tables();
	foreach my $table (@tables)
	{
		$node->sql($_) foreach split /; /, sprintf $command, $table;
	}
	$redis->resume;
	eventually { $redis->count('d') >= $sent } '... it is to its end';
	ok($node->wait_until_sent, '... for good');
	is($redis->sequence('d'), join(' ', 1 .. $sent), '... in order, none lost, none twice');
}

# The same, but the dispatcher dies meanwhile, and the next one reads the window again.
abort();
my $count = $sent;
enqueue(8000);
wait_until { $redis->count('d') > $count + 100 };
$redis->pause;
$node->sql("VACUUM FULL $_") foreach log_tables();
$node->kill_dispatcher;
$redis->resume;
eventually { $node->answers } 'the server is back after a crash';
eventually { $redis->count('d') >= $sent } 'a window whose dispatcher was killed is sent to its end';
ok($node->wait_until_sent, '... for good');
is($redis->sequence('d'), join(' ', 1 .. $sent), '... in order, none lost, none twice');
$redis->cli('FLUSHALL');
eventually { $redis->count('d') >= $sent } 'all is sent again';
is($redis->sequence('d'), join(' ', 1 .. $sent), '... from the rewritten tables');
is($redis->count('aborted'), 0, '... and nothing that was aborted');

# ALTER TABLE makes all rows its own when it rewrites a table: a snapshot that was taken before, while its lock was waited
# for, shows none of them.
sub rewrite_amid
{
	my ($table, $begin) = @_;
	my $session = $node->session;

	$session->query("BEGIN; ALTER TABLE $table ADD COLUMN rewritten text DEFAULT clock_timestamp()::text");
	$begin->();
	my $waits = wait_until { $node->sql("SELECT count(*) FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted") };
	$session->query("ALTER TABLE $table DROP COLUMN rewritten; COMMIT");
	$session->quit;
	return ok($waits, "$table is rewritten while the dispatcher waits for it");
}

my $dispatcher = $node->dispatcher;
kill 'STOP', $dispatcher;
enqueue(100);
rewrite_amid('outbox.log_' . $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'}), sub { kill 'CONT', $dispatcher });
enqueue(1);
eventually { $redis->count('d') >= $sent } '... all that was committed before is sent';
is($redis->sequence('d'), join(' ', 1 .. $sent), '... in order, none lost, none twice');

# The same of settings, which a dispatcher reads when it starts.
$node->sql(q{SELECT outbox_pause('paused')});
$node->sql(q{SELECT outbox_enqueue('paused', '1')});
rewrite_amid('outbox.destination', sub { $node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status') });
enqueue(1);
eventually { $redis->count('d') >= $sent } '... it sends';
is($redis->count('paused'), 0, '... nothing to a destination that is paused');
$node->sql(q{SELECT outbox_resume('paused')});
eventually { $redis->count('paused') == 1 } '... until it is resumed';

# Other programs that rewrite a table rely on a trigger, which would not fire.
like($node->sql_error("CREATE TRIGGER copy AFTER INSERT OR UPDATE OR DELETE ON outbox.$_ FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"),
	qr/^42809: cannot create trigger "copy" on table "outbox\.$_"/, "no trigger is created on $_") foreach qw(log_0 window_0 record_0 history_0 deferred forgotten);
$node->sql('CREATE TRIGGER copy AFTER UPDATE ON outbox.endpoint FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()');
$node->sql('CREATE DATABASE other');
$node->sql('CREATE SCHEMA outbox; CREATE TABLE outbox.log_0 (id integer); CREATE TRIGGER copy AFTER UPDATE ON outbox.log_0 FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()', 'other');
is($node->sql(q{SELECT count(*) FROM pg_trigger WHERE tgname = 'copy'}, 'other'), 1, 'a table that is not ours may have one, whatever its name');

done_testing();
