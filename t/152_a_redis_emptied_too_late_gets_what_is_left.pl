# Redis is emptied when segments of the log have been emptied already: what the log still
# has is sent again, in order and with the same ids, and server log and outbox.status say
# from which time on nothing is missing.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
END
my $n = 0;
my (@ids, %time);

sub enqueue
{
	foreach (1 .. $_[0])
	{
		$n++;
		push @ids, $node->sql("SELECT outbox_enqueue('d', '$n')");
	}
	return;
}

sub windows { return join ' UNION ALL ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3; }

# Ids of what the log has, in order.
sub kept
{
	return $node->sql(<<END);
SELECT string_agg(message_id, ' ' ORDER BY l.id)
FROM (@{[ join ' UNION ALL ', map { "SELECT $_ AS segment, id, coalesce(message_uuid::text, message_id) AS message_id FROM outbox.log_$_" } 0 .. 3 ]}) l
	JOIN outbox.ring r ON r.ring = 'log' AND r.segment = l.segment AND r.state NOT IN ('retired', 'empty')
END
}

sub arrived { return join ' ', map { $_->{id} } $redis->entries('d'); }

# Checks server log and status after Redis was emptied: they name the same time, which is
# later than all that is lost and not later than what is left.
sub is_told
{
	my ($log, $lost) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $text = $node->log_since($log);

	like($text, qr/Redis has no fence of this database; sending again all that is in the log after window [1-9]\d*\n.*DETAIL:  Messages enqueued before .* that Redis has lost are no longer in the log/,
		'the log says before when messages may be missing') or return;

	# Of a window that the log has a part of, another line says so.
	my $said = ($text =~ /Messages enqueued before (.*) that Redis has lost/g)[-1];
	like($node->status('problem'), qr/^Redis has lost messages that are no longer in the log\. Some of those enqueued before \Q$said\E might be missing/,
		'... and so does status');
	my $at = $node->sql("SELECT extract(epoch FROM timestamptz '$said') * 1000");
	cmp_ok($at, '>=', $time{ $ids[ $lost - 1 ] }, '... after the newest that is missing');
	cmp_ok($at, '<=', $time{ $ids[$lost] } + 60_000, '... and hardly later than what is left');
	return;
}

eventually { enqueue(1); $node->sql("SELECT min(number) > 0 FROM (@{[ windows() ]}) w") eq 't' } 'the first segments of the log are emptied';
$node->set('outbox.replay_window' => '1h');
enqueue(10);
ok($node->wait_until_sent, 'all is sent');
is(arrived(), "@ids", '... once, in order');
eventually { $node->sql(q{SELECT count(*) FROM outbox.ring WHERE ring = 'log' AND state = 'retired'}) == 0 } 'no more of it will go';
%time = map { $_->{id} => $_->{time} } $redis->entries('d');
my $kept = kept();
my $left = split ' ', $kept;
my $lost = $n - $left;
cmp_ok($left, '>=', 10, 'the log has the newest');
cmp_ok($lost, '>', 0, '... and not the oldest');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong yet';

# While the connection is idle.
my $log = $node->log_position;
$redis->cli('FLUSHALL');
eventually { $redis->count('d') >= $left } 'FLUSHALL behind an idle connection: what is left is sent again';
ok($node->wait_until_sent, '... for good');
is(arrived(), $kept, '... in order, none twice, with the same ids');
is_told($log, $lost);

# The problem stays until it is acknowledged.
enqueue(1);
ok($node->wait_until_sent, 'a new message is sent');
like($node->status('problem'), qr/might be missing/, '... which is no reason to be silent');
my $dispatcher = $node->dispatcher;
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
eventually { $node->status(qq{dispatcher_pid <> $dispatcher AND dispatcher_state = 'idle' AND redis_state = 'up'}) eq 't' } '... nor is a new dispatcher';
like($node->status('problem'), qr/might be missing.*call outbox_acknowledge_loss\(\)\.$/, '... which says how it ends');
is($node->sql('SELECT outbox_acknowledge_loss() = max(lost_before) FROM outbox.loss'), 't', 'it is acknowledged');
is($node->sql('SELECT outbox_acknowledge_loss() IS NULL'), 't', '... once');
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';

# It is noticed with the next message.
%time = (%time, map { $_->{id} => $_->{time} } $redis->entries('d'));
$log = $node->log_position;
$redis->cli('FLUSHALL');
enqueue(2);
eventually { $redis->count('d') >= $left + 3 } 'FLUSHALL before a message';
is(arrived(), "@ids[$lost .. $#ids]", '... the same, and what is new after it');
is_told($log, $lost);

# A server that comes back without data.
$log = $node->log_position;
$redis->stop;
$redis->lose_data;
enqueue(2);
$redis->start;
eventually { $redis->count('d') >= $left + 5 } 'a Redis that comes back empty';
is(arrived(), "@ids[$lost .. $#ids]", '... the same');
is_told($log, $lost);

# If nothing is to be sent again, nothing is reported as missing.
$node->set('outbox.redis_data_loss' => 'resume');
$node->sql('SELECT pg_terminate_backend(dispatcher_pid) FROM outbox.status');
eventually { $node->status(q{dispatcher_state = 'idle' AND redis_state = 'up'}) eq 't' } 'a new dispatcher, with outbox.redis_data_loss = resume';
like($node->status('problem'), qr/might be missing/, '... tells what was lost before');
$node->sql('SELECT outbox_acknowledge_loss()');
eventually { $node->status('problem IS NULL') eq 't' } '... until that is acknowledged';
$log = $node->log_position;
$redis->cli('FLUSHALL');
enqueue(1);
eventually { $redis->count('d') > 0 } 'FLUSHALL';
ok($node->wait_until_sent, '... what is new is sent');
is(arrived(), $ids[-1], '... and nothing else');
eventually { $node->status('problem IS NULL') eq 't' } '... which was asked for';
unlike($node->log_since($log), qr/not in the log any more/, '... and is not reported');

done_testing();
