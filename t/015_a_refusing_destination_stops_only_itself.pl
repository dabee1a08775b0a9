# A key of another type refuses what is added: messages for it wait, in their order, and
# those for other destinations do not.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'restart_after_crash = on');


# Enqueues messages n .. m of both destinations in one transaction.
sub enqueue
{
	my ($first, $last) = @_;
	$node->sql(<<END);
BEGIN;
SELECT outbox_begin('m$first');
SELECT outbox_enqueue(dest, i::text, '{"h": 1}', dest || i) FROM generate_series($first, $last) i, (VALUES ('bad'), ('good')) v (dest);
SELECT outbox_commit();
COMMIT;
END
	return;
}

$redis->refuse('bad');
enqueue(1, 3);
eventually { $redis->count('good') == 3 } 'other destinations go on';
enqueue(4, 6);
eventually { $redis->count('good') == 6 } '... with later messages too';
is($redis->sequence('good'), '1 2 3 4 5 6', '... in order, none twice');

eventually { $node->status('deferred') == 6 } 'refused messages are deferred, and those behind them';
eventually { $node->status('pending') == 6 } '... and pending';
eventually { $node->sql(q{SELECT string_agg(message_id, ' ' ORDER BY id) FROM outbox.pending WHERE dest = 'bad' AND state = 'deferred'}) eq
	'bad1 bad2 bad3 bad4 bad5 bad6' } '... and to be seen';
eventually { $node->sql(q{SELECT attempts > 2 AND last_error LIKE '%WRONGTYPE%' AND next_attempt IS NOT NULL FROM outbox.pending ORDER BY id LIMIT 1}) eq 't' }
'... with the attempts and what Redis says';
$node->set('outbox.retry_max_delay' => '50ms', 'outbox.max_attempts' => 100_000);
is($node->sql(<<'END'), 0, '... which is shown at any moment, also while one of them is tried again');
CREATE FUNCTION moments_without_error() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	found bigint := 0;
BEGIN
	FOR i IN 1 .. 1000 LOOP
		found := found + (SELECT count(*) FROM (VALUES ('bad')) v (dest) LEFT JOIN outbox.destinations USING (dest) WHERE last_error IS NULL);
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN found;
END;
$$;
SELECT moments_without_error();
END
is($node->sql(q{SELECT outbox_wait('m1', timeout => '100 ms')}), 'f', 'outbox_wait waits for them');
is($redis->cli('GET', 'bad'), 'not a stream', 'the key is left as it is');
is($node->status('redis_state'), 'up', 'Redis itself is not to blame');

# They survive restarts and crashes.
$node->restart;
enqueue(7, 7);
eventually { $redis->count('good') == 7 } 'after a restart other destinations go on';
$node->kill_dispatcher;
eventually { $node->answers } 'the server is back after a crash';
enqueue(8, 8);
eventually { $redis->count('good') == 8 } 'after a crash other destinations go on';
is($redis->sequence('good'), '1 2 3 4 5 6 7 8', '... in order, none twice');
eventually { $node->status('deferred') == 8 } '... and the refused messages are there';
is($redis->restart->cli('GET', 'bad'), 'not a stream', 'Redis restarts too');

$redis->accept('bad');
enqueue(9, 10);
eventually { $redis->count('bad') >= 10 } 'without the key they arrive';
ok($node->wait_until_sent, '... all of them');
is($redis->sequence('bad'), '1 2 3 4 5 6 7 8 9 10', '... in order, none twice');
is($redis->sequence('good'), '1 2 3 4 5 6 7 8 9 10', '... nor in the other stream');
my ($entry) = $redis->entries('bad');
is_deeply([ $entry->{id}, $entry->{cause}, $entry->{headers} ], [ 'bad1', 'm1', { h => 1 } ], '... as they were enqueued');
eventually { $node->status('deferred') == 0 } 'nothing is deferred any more';
is($node->sql(q{SELECT outbox_wait('m1')}), 't', 'outbox_wait knows');

# Under load, no message is lost, doubled or overtaken while a destination refuses now and then.
my $script = <<'END';
BEGIN;
UPDATE turn SET n = n + 1 RETURNING n \gset
SELECT outbox_enqueue('fickle', :n::text);
SELECT outbox_enqueue('steady', :n::text);
COMMIT;
END
$node->sql('CREATE TABLE turn (n integer); INSERT INTO turn VALUES (0)');
my $load = $node->start_load(clients => 4, rate => 300, scripts => [$script]);
foreach my $round (1 .. 5)
{
	my $sent = $redis->count('fickle');
	wait_until { $redis->count('fickle') > $sent + 50 };
	$redis->refuse('fickle');
	kill 'TERM', $node->dispatcher if $round == 2;
	$redis->restart if $round == 3;
	eventually { $node->status('deferred') > 10 } "refused under load, round $round";
	$redis->accept('fickle');
	kill 'TERM', $node->dispatcher if $round == 4;
	$redis->restart if $round == 5;
	eventually { $node->status('deferred, dispatcher_state IN ($$idle$$, $$publishing$$)') eq '0|t' } '... and sent later';
}
$load->stop;
ok($node->wait_until_sent, 'everything is sent');
my $last = $node->sql('SELECT n FROM turn');
is($redis->sequence('steady'), join(' ', 1 .. $last), 'the steady stream is in order and whole');
is($redis->sequence('fickle'), join(' ', 1 .. $last), 'so is the fickle one');

done_testing();
