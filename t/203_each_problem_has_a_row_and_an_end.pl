# outbox.problems has a row for each thing that is wrong, the worst first, which
# outbox.status shows. Each problem ends by itself or by a function that it names, and
# none appears without a reason.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new(tcp => 1);
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
outbox.max_attempts = 1000000
outbox.retry_max_delay = '200ms'
END
$node->sql(q{CREATE ROLE watcher LOGIN; SELECT outbox_grant('watcher', 'monitor')});

sub kinds { return $node->sql('SELECT kind FROM outbox.problems', 'postgres', extra_params => [ '-U', 'watcher' ]) =~ s/\n/, /gr; }

sub has
{
	my ($kinds, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { kinds() eq $kinds } $name or diag kinds();
	# The views are read one after the other, and attempts go on meanwhile.
	eventually { $node->status('problem IS NOT DISTINCT FROM (SELECT problem FROM outbox.problems LIMIT 1)') eq 't' } '... status shows the first';
	return;
}

# Several problems at the same time.
has('', 'nothing is wrong');
$redis->refuse('refusing');
$node->set('outbox.max_attempts' => 1);
$node->sql(q{SELECT outbox_enqueue('refusing', 'x', message_id => 'm')});
has('dead', 'a message is dead');
$node->set('outbox.max_attempts' => 1000000);
$node->sql(q{SELECT outbox_enqueue('refusing', 'x') FROM generate_series(1, 3)});
has('dead, destination', '... and another one is refused');
$redis->stop;
has('redis down, dead, destination', 'Redis is away');
is($node->sql(q{SELECT string_agg(DISTINCT severity, ' ') FROM outbox.problems WHERE since BETWEEN now() - interval '5 min' AND now()}),
	'critical warning', '... since when is known');
like($node->status('problem'), qr/^Redis cannot be used, so messages wait: could not connect: .*Redis at "\Q@{[ $redis->socket ]}\E"\). Repair Redis, or correct outbox\.redis_url by ALTER SYSTEM and a reload, or by ALTER DATABASE where that has set it\. /,
	'... and which it is, and what to do');
$redis->start;
has('dead, destination', 'it is back');
is($node->sql(q{SELECT outbox_discard('refusing', 'm')}), 1, 'the dead message is discarded');
has('destination', '... which ends that problem');
$node->sql('SELECT outbox_pause()');
has('paused, destination', 'everything is paused');
$node->sql('SELECT outbox_resume()');
has('destination', '... no more');

# The dispatcher waits for a lock.
my $session = $node->session;
my $locker = $session->query_safe('SELECT pg_backend_pid()');
my $lock = 'BEGIN; LOCK TABLE ' . join(', ', map { "outbox.window_$_" } 0 .. 3) . ' IN SHARE MODE';
$session->query_safe($lock);
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
has('lock, destination', 'another session has locked the tables of windows');
like($node->status('problem'), qr/^The dispatcher waits for a lock, so nothing is sent\. End the transaction of process $locker, which has it\.$/, '... and which it is');
is($node->sql(q{SELECT since BETWEEN now() - interval '5 min' AND now() - interval '1 s' FROM outbox.problems WHERE kind = 'lock'}), 't', '... since when is known');
$session->query_safe('COMMIT');
has('destination', '... no more');
$node->sql("$lock; PREPARE TRANSACTION 'locker'");
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
has('lock, destination', 'a prepared transaction has locked them');
like($node->status('problem'), qr/ A prepared transaction has it: /, '... which is said');
$node->sql(q{ROLLBACK PREPARED 'locker'});
has('destination', '... no more');
$session->quit;

# All that is enqueued is refused: the fence moves on nevertheless, and when the connection
# is lost, no message is.
my $windows = join ' UNION ALL ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3;
sub fence { return $redis->command('GET', $redis->key('fence')); }
my ($newest) = $node->sql("SELECT max(number) FROM ($windows) w");
my $log = $node->log_position;
my $load = $node->start_load(clients => 1, rate => 20, scripts => [q{SELECT outbox_enqueue('refusing', 'x');}]);
eventually { $node->sql("SELECT min(number) > $newest FROM ($windows) w") eq 't' } 'windows of which nothing was sent are emptied';
my ($connection) = fence() =~ /^\d+ \S+ (\S+)/;
$redis->cli('CLIENT', 'KILL', 'TYPE', 'normal');
eventually { fence() !~ /$connection/ } 'the connection is lost and opened again';
$load->stop;
has('destination', 'nothing else is wrong');
unlike($node->log_since($log), qr/older than the windows/, '... as the log says');
$redis->accept('refusing');
has('', '... and when the destination accepts, nothing is');

# A loss is shown until it is acknowledged, whatever happens meanwhile.
$redis->stop;
$redis->save_data;
$redis->start;
$newest = $node->sql("SELECT max(number) FROM ($windows) w");
eventually { $node->sql(q{SELECT outbox_enqueue('d', 'x')}); $node->sql("SELECT min(number) > $newest FROM ($windows) w") eq 't' } 'segments are emptied';
$redis->stop;
$redis->restore_data;
$node->set('outbox.redis_data_loss' => 'resume');
$redis->start;
has('loss', 'Redis goes back to before them');
$node->restart;
has('loss', '... a restart of the server does not end that');
like($node->status('problem'), qr/Some of those enqueued before .* might be missing from Redis. When you have dealt with that, call outbox_acknowledge_loss\(\)\.$/,
	'... and what to do is said');
is($node->sql('SELECT outbox_acknowledge_loss() = max(lost_before) FROM outbox.loss'), 't', 'it is acknowledged');
has('', '... and over');
is($node->sql('SELECT outbox_acknowledge_loss() IS NULL'), 't', '... once');

done_testing();
