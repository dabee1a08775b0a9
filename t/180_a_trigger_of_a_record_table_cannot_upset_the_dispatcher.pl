# The trigger of a record table calls the outbox while records are marked. For an endpoint
# with a store that would be a wait, during which other work is done. All functions refuse
# it, and nothing is sent within its transaction.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $proxy = Proxy->new($store);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.max_attempts = 1000");

$node->sql(<<'END_OF_SQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
		$q$SELECT public.outbox_begin(gen_random_uuid()::text, 'stored')$q$,
		$q$SELECT public.outbox_enqueue('forbidden', 'x')$q$,
		$q$SELECT public.outbox_send('forbidden', 'x')$q$,
		$q$SELECT public.outbox_wait('x', 'stored')$q$,
		$q$SELECT public.outbox_cleanup()$q$,
		$q$SELECT public.outbox_commit()$q$,
		$q$SELECT public.outbox_forget('x', 'default')$q$,
		$q$SELECT public.outbox_replay(now(), 'forbidden')$q$,
		$q$SELECT public.outbox_create_endpoint('forbidden')$q$,
		$q$SELECT public.outbox_alter_endpoint('own', 'pessimistic')$q$,
		$q$SELECT public.outbox_drop_endpoint('own', true)$q$,
		$q$SELECT public.outbox_pause('forbidden')$q$,
		$q$SELECT outbox.store_add(ARRAY[gen_random_uuid()])$q$,
		$q$SELECT outbox.store_remove(gen_random_uuid())$q$,
		$q$SELECT outbox.store_contains(gen_random_uuid())$q$] LOOP
		BEGIN
			EXECUTE statement;
		EXCEPTION WHEN OTHERS THEN
			NEW.note := concat_ws(', ', NEW.note, SQLSTATE || ' ' || SQLERRM);
		END;
	END LOOP;
	RETURN NEW;
END
$$;
CREATE TRIGGER meddle BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION meddle();
SELECT outbox_create_endpoint('own', record_table => 'inbox');
END_OF_SQL
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $proxy->url . "')");
eventually { $node->status('problem IS NULL') eq 't' } 'a table with such a trigger, and a store';

# The store does not answer anybody who looks.
$proxy->hold('EXISTS');
my $dispatcher = $node->dispatcher;
$node->load(clients => 3, transactions => 60, rate => 100, scripts => [ <<'END_OF_SQL', <<'END_OF_SQL' ], args => ['--define=n=0']);
\set n :n + 1
BEGIN;
SELECT outbox_begin(:client_id || ' ' || :n, 'own');
SELECT outbox_enqueue('d', :client_id || ' ' || :n);
SELECT outbox_commit();
COMMIT;
END_OF_SQL
SELECT outbox_enqueue('later', clock_timestamp()::text, deliver_at => clock_timestamp() + '0.2 s');
END_OF_SQL
ok($node->wait_until_sent, 'all is sent');
eventually { $node->sql('SELECT count(*) FROM inbox WHERE NOT dispatched') == 0 } '... and marked';
is_exactly_once([ $redis->bodies('d') ], [ split /\n/, $node->sql('SELECT message_id FROM inbox') ], '... once');
eventually { $redis->count('d') + $redis->count('later') == 180 } '... with those that were scheduled';
is($redis->count('forbidden'), 0, 'the trigger has sent nothing');
is($node->sql('SELECT DISTINCT note FROM inbox'), join(', ', ('55000 the code of a record table must not use the outbox') x 15),
	'... for it may use nothing of the outbox');
is($node->dispatcher, $dispatcher, 'all that was one dispatcher');
$proxy->pass;

# Windows are missing, as after such an accident: the dispatcher goes on with those that
# exist, loses none of them, and reports it.
sub windows
{
	return $node->sql(q{SELECT string_agg(number::text, ' ' ORDER BY number) FROM (}
		  . join(' UNION ', map { "SELECT number FROM outbox.window_$_" } 0 .. 3) . ') w');
}

sub forget_windows
{
	my (@numbers) = @_;
	my $numbers = join ', ', @numbers;
	$node->sql("DELETE FROM outbox.window_$_ WHERE number IN ($numbers)") foreach 0 .. 3;
	return;
}

sub open_windows
{
	my ($name, $count) = @_;
	$redis->stop;
	my $first = (split / /, windows())[-1];
	foreach my $i (1 .. $count)
	{
		my $before = windows();
		$node->sql("BEGIN; SELECT outbox_begin('$name $i', 'own'); SELECT outbox_enqueue('$name', '$i'); SELECT outbox_commit(); COMMIT");
		wait_until { windows() ne $before };
	}
	return grep { $_ > $first } split / /, windows();
}

my @opened = open_windows('gap', 4);
cmp_ok(scalar @opened, '>=', 4, 'Redis is away, windows are opened');
forget_windows(@opened[ 1, 2 ]);
$node->sql("SELECT pg_terminate_backend(" . $node->dispatcher . ")");
$redis->start;
eventually { $redis->sequence('gap') eq '1 2 3 4' } 'two of them are missing: all is sent that they held, in order';
eventually { $node->sql(q{SELECT count(*) FROM inbox WHERE NOT dispatched}) == 0 } '... and marked';
like($node->status('problem'), qr/might be missing/, '... and status warns');
$node->sql(q{SELECT outbox_enqueue('gap', '5')});
eventually { $redis->sequence('gap') eq '1 2 3 4 5' } '... and it goes on';

@opened = open_windows('newest', 3);
forget_windows($opened[-1]);
$redis->start;
eventually { $redis->sequence('newest') eq '1 2 3' } 'the newest one is missing while the dispatcher runs';

# It is gone before the ids of its messages are propagated; the next window has none.
$redis->pause;
my $before = windows();
$node->sql(join '; ', 'BEGIN', (map { "SELECT outbox_begin('unread', '$_'); SELECT outbox_enqueue('unread', '$_'); SELECT outbox_commit()" } qw(own stored)), 'COMMIT');
wait_until { windows() ne $before };
forget_windows((split / /, windows())[-1]);
$redis->resume;
eventually { $redis->count('unread') == 2 } 'the newest one is missing when it is sent';
eventually { $node->sql(q{SELECT count(*) FROM inbox WHERE NOT dispatched}) == 0 } '... and its record is marked';
eventually { $store->count_ids == 1 } '... and the store has its id';

@opened = open_windows('again', 3);
forget_windows(@opened[ 1 .. $#opened ]);
$node->sql("SELECT pg_terminate_backend(" . $node->dispatcher . ")");
$redis->start;
eventually { $redis->sequence('again') eq '1 2 3' } 'the newest ones are missing when it starts';
eventually { $node->sql(q{SELECT count(*) FROM inbox WHERE NOT dispatched}) == 0 } '... and all is marked'
  or diag join "\n", map { $node->sql($_) } 'SELECT message_id FROM inbox WHERE NOT dispatched', 'SELECT kind, problem FROM outbox.problems', 'SELECT pid, wait_event, state, backend_type FROM pg_stat_activity',
  map { "SELECT $_, number, uuid, published, propagated, messages FROM outbox.window_$_ ORDER BY number DESC LIMIT 6" } 0 .. 3;

done_testing();
