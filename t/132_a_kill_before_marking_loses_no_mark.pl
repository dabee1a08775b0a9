# A process or the server is killed when messages are in Redis and their records are not
# yet marked: the next process marks them, and nothing is sent again. Under load, whenever
# kill -9 comes, each message is processed once, sent once and marked.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;
use Time::HiRes qw(usleep);

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "restart_after_crash = on\noutbox.takeover_delay = '1s'");

$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE TABLE work (message_id text);
SELECT outbox_create_endpoint('own', record_table => 'inbox');
END

sub marked { return $node->sql(q{SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM inbox WHERE dispatched}); }

sub bodies { return join ' ', sort $redis->bodies('d'); }

# Messages are sent, and their records cannot be marked: the table is locked.
sub stop_before_marking
{
	my (@msgids) = @_;
	my $locker = $node->session;

	$node->sql('SELECT outbox_pause()');
	$node->handle($_, 'own') foreach @msgids;
	$locker->query_safe('BEGIN; LOCK TABLE inbox IN SHARE MODE');
	my $count = $redis->count('d') + @msgids;
	$node->sql('SELECT outbox_resume()');
	eventually { $redis->count('d') == $count } "@msgids are sent";
	eventually { $node->status('windows') == 0 } '... which the dispatcher knows';
	return $locker;
}

# The session with the lock must end before the server crashes.
sub forget { my ($session) = @_; eval { $session->quit }; return; }

$node->handle('a1', 'own');
eventually { marked() eq 'a1' } 'a record is marked';

my $locker = stop_before_marking('b1', 'b2');
is(marked(), 'a1', '... and not marked');
$node->kill_dispatcher;
eventually { marked() eq 'a1 b1 b2' } 'the dispatcher is killed: they are marked';
forget($locker);
is(bodies(), 'a1 b1 b2', '... and not sent again');

$locker = stop_before_marking('c1');
$node->stop('immediate');
forget($locker);
$node->start;
eventually { marked() eq 'a1 b1 b2 c1' } 'the server is killed: they are marked';
is(bodies(), 'a1 b1 b2 c1', '... and not sent again');

$locker = stop_before_marking('d1');
foreach (1 .. 3)
{
	$node->sql(q{SELECT outbox_enqueue('e', 'x')});
	$node->sql('SELECT pg_sleep(0.6)');
}
$node->stop('immediate');
forget($locker);
$redis->restart;
$node->start;
eventually { marked() eq 'a1 b1 b2 c1 d1' } 'so they are when more windows have been noted meanwhile';
is(bodies(), 'a1 b1 b2 c1 d1', '... and Redis was restarted');
my $times = $node->sql('SELECT message_id, dispatched_at FROM inbox ORDER BY 1');
$node->restart;
$node->handle('e1', 'own');
eventually { marked() =~ /e1/ } 'after a restart';
is($node->sql(q{SELECT message_id, dispatched_at FROM inbox WHERE message_id < 'e' ORDER BY 1}), $times,
	'... nothing is marked a second time');

# Two copies of each message, at all isolation levels and in both modes, under kills.
my $script = <<'END';
\set n random(1, 400)
\set n 1000 * :round + :n
BEGIN ISOLATION LEVEL :level;
SELECT outbox_begin('load ' || :n, 'own', ':mode') AS new \gset
\if :new
INSERT INTO work VALUES ('load ' || :n);
SELECT outbox_enqueue('load', 'load ' || :n);
\endif
SELECT outbox_commit();
COMMIT;
END
srand(my $seed = $ENV{SEED} // time);
note "SEED=$seed";
foreach my $round (1 .. 6)
{
	my @loads = map { my ($level, $mode) = split /,/; $node->start_load(clients => 2, scripts => [ $script =~ s/:level/$level/r =~ s/:mode/$mode/r =~ s/:round/$round/r ], args => ['--max-tries=1']) }
	  'READ COMMITTED,optimistic', 'REPEATABLE READ,pessimistic', 'SERIALIZABLE,' . ($round % 2 ? 'optimistic' : 'pessimistic');

	my $before = $redis->count('load');
	wait_until { $redis->count('load') > $before + 10 };
	usleep(rand 400_000);
	if ($round % 3 == 0)
	{
		kill 'KILL', $node->{_pid};
		$node->start_after_kill or die 'the server does not come back';
	}
	else
	{
		$node->kill_dispatcher;
		wait_until { $node->sql('SELECT 1') == 1 };
	}
	eval { $_->stop } foreach @loads;
	wait_until { $node->sql('SELECT 1') == 1 };
}
ok($node->wait_until_sent, 'after six kills under load all is sent');
eventually { $node->sql('SELECT count(*) FROM inbox WHERE NOT dispatched') == 0 } '... and marked';
my @processed = split /\n/, $node->sql('SELECT message_id FROM work ORDER BY 1');
my @records = split /\n/, $node->sql(q{SELECT message_id FROM inbox WHERE message_id LIKE 'load%' ORDER BY 1});
is_exactly_once(\@processed, \@records, 'each record stands for one change of state');
is_exactly_once([ $redis->bodies('load') ], \@records, '... and one message');
cmp_ok(scalar @records, '>', 50, 'there were some');

done_testing();
