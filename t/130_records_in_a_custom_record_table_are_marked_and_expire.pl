# An endpoint keeps its records in a custom record table. They are marked when their
# messages are in Redis, and deleted when the retention has passed since then. What is not
# marked stays.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.cleanup_interval = -1
timezone = 'Asia/Kolkata'
END

$node->sql(<<'END');
CREATE TABLE inbox (ref text PRIMARY KEY, done boolean NOT NULL, done_at timestamptz, note text DEFAULT current_user);
CREATE INDEX ON inbox (done_at) WHERE done;
CREATE TABLE ids (message_id uuid UNIQUE, dispatched boolean, dispatched_at timestamp);
CREATE INDEX ON ids (dispatched, dispatched_at);
CREATE ROLE tables_owner;
ALTER TABLE inbox OWNER TO tables_owner;
ALTER TABLE ids OWNER TO tables_owner;
SELECT outbox_create_endpoint('inbox', retention => '1 hour', record_table => 'inbox',
	record_columns => '{"message_id": "ref", "dispatched": "done", "dispatched_at": "done_at"}');
SELECT outbox_create_endpoint('ids', 'pessimistic', record_table => 'ids');
END

sub is_duplicate { return $node->sql("SELECT outbox_begin('$_[1]', '$_[0]')") eq 'f'; }

my $id = '11111111-2222-3333-4444-555555555555';
$node->handle('m1', 'inbox', messages => 2);
$node->handle('m2', 'inbox', messages => 0);
$node->handle($id, 'ids', messages => 1);
is($node->sql(q{SELECT outbox_wait('m1', 'inbox', '3 min'), outbox_wait('m2', 'inbox', '3 min'), outbox_wait('nobody', 'inbox', '3 min') IS NULL}), 't|t|t',
	'outbox_wait() knows what is in such a table');
is($node->sql("SELECT outbox_wait('$id', 'ids', '3 min')"), 't', '... of whatever kind');
eventually { $redis->count('d') == 3 } 'messages are sent';
is($node->sql(q{SELECT ref, done, done_at BETWEEN now() - interval '1 minute' AND now(), note FROM inbox ORDER BY ref}),
	"m1|t|t|tables_owner\nm2|t|t|tables_owner", 'records are marked, also of a message without outgoing ones');
is($node->sql(q{SELECT dispatched, now() - dispatched_at AT TIME ZONE 'UTC' BETWEEN '0' AND '1 minute' FROM ids}),
	't|t', 'a time without a zone is in UTC');
is($node->sql(q{SELECT endpoint, state, count(*) FROM outbox.records GROUP BY 1, 2 ORDER BY 1}), "ids|dispatched|1\ninbox|dispatched|2",
	'outbox.records shows them');
is($node->sql(q{SELECT name, record_table, records, duplicates, size > 0, oldest_record BETWEEN '0' AND '1 minute' FROM outbox.endpoints WHERE record_table IS NOT NULL ORDER BY 1}),
	"ids|ids|1|0|t|t\ninbox|inbox|2|0|t|t", '... and outbox.endpoints');
is($node->sql('SELECT count(*) FROM (SELECT 1 FROM outbox.record_0 UNION ALL SELECT 1 FROM outbox.record_1) r'), 0, 'our own tables have none');
ok(is_duplicate('inbox', 'm1') && is_duplicate('ids', uc $id), 'duplicates are found');

# While Redis is away nothing is marked.
$redis->stop;
$node->handle('m3', 'inbox', messages => 1);
is($node->sql(q{SELECT outbox_wait('m3', 'inbox', '0.3 s')}), 'f', 'outbox_wait() waits while Redis is away');
is($node->sql(q{SELECT done FROM inbox WHERE ref = 'm3'}), 'f', '... and the record is not marked');
$redis->start;
is($node->sql(q{SELECT outbox_wait('m3', 'inbox', '3 min')}), 't', 'Redis is back');

# A record is marked when all its messages are in Redis, and not while one of them is
# deferred. That holds up nothing else.
$redis->refuse('bad');
$node->sql(q{BEGIN; SELECT outbox_begin('m4', 'inbox'), outbox_enqueue('bad', '4'), outbox_enqueue('d', '4'), outbox_commit(); COMMIT});
$node->sql(q{BEGIN; SELECT outbox_begin('m5', 'inbox'), outbox_enqueue('later', '5', deliver_at => clock_timestamp() + '1 h'), outbox_commit(); COMMIT});
$node->handle('m6', 'inbox', messages => 1);
is($node->sql(q{SELECT outbox_wait('m6', 'inbox', '3 min')}), 't', 'a message waits for its destination, another one for its time: others go on');
is($node->sql(q{SELECT outbox_wait('m4', 'inbox', '0'), outbox_wait('m5', 'inbox', '0')}), 'f|f', '... outbox_wait() waits for those');
eventually { $node->sql(q{SELECT max(propagated) >= max(number) - 1 FROM (SELECT * FROM outbox.window_0 UNION ALL SELECT * FROM outbox.window_1) w}) eq 't' }
'... the log does not';
is($node->sql(q{SELECT ref FROM inbox WHERE NOT done ORDER BY ref}), "m4\nm5", '... and their records are not marked');
$node->sql('CREATE DATABASE copy TEMPLATE postgres');
eventually { $node->sql('SELECT count(*) FROM inbox WHERE NOT done', 'copy') == 0 } '... nor do those of a copy wait, which does not send these messages';
is($node->sql(q{SELECT outbox_wait('m4', 'inbox', '3 min'), outbox_wait('m5', 'inbox', '3 min')}, 'copy'), 't|t', '... as outbox_wait() says there');
is($node->sql(q{SELECT ref FROM inbox WHERE NOT done ORDER BY ref}), "m4\nm5", '... while those of its original do');
$node->sql('DROP DATABASE copy');
$redis->accept('bad');
is($node->sql(q{SELECT outbox_wait('m4', 'inbox', '3 min')}), 't', '... until the message is sent');
is($node->sql(q{SELECT done, done_at > now() - interval '1 minute' FROM inbox WHERE ref = 'm4'}), 't|t', '... then it is marked, and its retention begins');
$node->sql(q{DELETE FROM inbox WHERE ref IN ('m5', 'm6')});

# A dead message is not in Redis either: its record is not marked until the message is
# sent after all, or discarded.
$node->sql(q{ALTER SYSTEM SET outbox.max_attempts = 1; SELECT pg_reload_conf()});
foreach my $how ('outbox_retry', 'outbox_discard')
{
	my %calls = (
		plainly => 'SELECT %s',
		replicated => 'SET session_replication_role = replica; SELECT %s',
		prepared => q{BEGIN; SELECT %s; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'});

	foreach my $call (sort keys %calls)
	{
		my $id = "$how $call";

		$redis->refuse('bad');
		$node->sql(qq{BEGIN; SELECT outbox_begin('$id', 'inbox'), outbox_enqueue('bad', '$how', message_id => '$id'), outbox_commit(); COMMIT});
		is($node->sql(qq{SELECT outbox_wait('$id', 'inbox', '3 min')}), 'f', 'a message is dead, outbox_wait() says so');
		is($node->sql(qq{SELECT done FROM inbox WHERE ref = '$id'}), 'f', '... its record is not marked');
		$redis->accept('bad');
		$node->sql(sprintf $calls{$call}, "$how('bad', '$id')");
		is($node->sql(qq{SELECT outbox_wait('$id', 'inbox', '3 min')}), 't', "... until $how(), $call");
		is($node->sql(qq{SELECT done FROM inbox WHERE ref = '$id'}), 't', '... and then it is');
	}
}
$node->sql(q{ALTER SYSTEM RESET outbox.max_attempts; SELECT pg_reload_conf(); DELETE FROM inbox WHERE ref LIKE 'outbox%'});

# Expiry.
is($node->sql('SELECT outbox_cleanup()'), 0, 'nothing has expired');
$node->sql(q{UPDATE inbox SET done_at = now() - interval '40 minutes' WHERE ref = 'm1';
	UPDATE inbox SET done_at = now() - interval '80 minutes' WHERE ref = 'm2';
	INSERT INTO inbox (ref, done, done_at) VALUES ('orphan', false, now() - interval '1 year'), ('unknown time', true, NULL);
	INSERT INTO inbox (ref, done, done_at) SELECT 'old ' || i, true, now() - interval '1 hour' - i * interval '1 second' FROM generate_series(1, 4321) i});
ok(is_duplicate('inbox', 'old 17'), 'what has expired counts as long as it is there');
is($node->sql('SELECT outbox_cleanup()'), 4322, 'what has expired is deleted, in several steps');
is($node->sql('SELECT ref FROM inbox ORDER BY 1'), "m1\nm3\nm4\norphan\nunknown time", '... and nothing else');
$node->handle('m2', 'inbox', messages => 1);
is($node->sql(q{SELECT outbox_wait('m2', 'inbox', '3 min')}), 't', 'an id that has expired is new again');
$node->sql(q{UPDATE ids SET dispatched_at = (now() AT TIME ZONE 'UTC') - interval '7 days' + interval '1 hour'});
is($node->sql('SELECT outbox_cleanup()'), 0, 'another endpoint has another retention, and another table');
$node->sql(q{UPDATE ids SET dispatched_at = dispatched_at - interval '2 hours'});
is($node->sql('SELECT outbox_cleanup()'), 1, '... which passes, too');
$node->sql(q{SELECT outbox_alter_endpoint('inbox', retention => '40 minutes')});
$node->sql(q{UPDATE inbox SET done_at = done_at - interval '1 second' WHERE ref = 'm1'});
is($node->sql('SELECT outbox_cleanup()'), 1, 'a retention that was altered counts at once');

# Records that a trigger keeps, however many, keep no others.
$node->sql(<<'END');
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN old.ref NOT LIKE 'kept%' THEN old END; END $$;
CREATE TRIGGER keep BEFORE DELETE ON inbox FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO inbox (ref, done, done_at) SELECT 'kept ' || i, true, now() - interval '2 days' FROM generate_series(1, 2000) i;
INSERT INTO inbox (ref, done, done_at) SELECT 'kept later ' || i, true, now() - interval '2 days' + i * interval '1 second' FROM generate_series(1, 2000) i;
INSERT INTO inbox (ref, done, done_at) SELECT 'old ' || i, true, now() - interval '2 days' FROM generate_series(1, 10) i;
INSERT INTO inbox (ref, done, done_at) SELECT 'less old ' || i, true, now() - interval '1 day' FROM generate_series(1, 10) i;
END
is($node->sql('SELECT outbox_cleanup()'), 20, 'what has expired is deleted, also behind thousands of records that a trigger keeps, with the same time or another');
is($node->sql('SELECT outbox_cleanup()'), 0, '... which stay');
$node->sql('DROP TRIGGER keep ON inbox');
is($node->sql('SELECT outbox_cleanup()'), 4000, '... until there is no such trigger');

# One whose deletion makes another one does not keep other tables from their turn.
$node->sql(<<'END');
CREATE TABLE endless (ref text COLLATE "C" PRIMARY KEY, done boolean NOT NULL DEFAULT false, place timestamptz);
CREATE INDEX ON endless (place) WHERE done;
CREATE TABLE behind (LIKE endless INCLUDING ALL);
INSERT INTO endless SELECT i, true, now() - interval '2 days' FROM generate_series(1, 1500) i;
INSERT INTO behind SELECT i, true, now() - interval '2 days' + i * interval '1 second' FROM generate_series(1, 3000) i;
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.endless VALUES (gen_random_uuid(), true, OLD.place); RETURN OLD; END $$;
CREATE TRIGGER again AFTER DELETE ON endless FOR EACH ROW EXECUTE FUNCTION again();
SELECT outbox_create_endpoint('endless', retention => '1 s', record_table => 'endless', record_columns => '{"message_id": "ref", "dispatched": "done", "dispatched_at": "place"}');
SELECT outbox_create_endpoint('zz behind', retention => '1 s', record_table => 'behind', record_columns => '{"message_id": "ref", "dispatched": "done", "dispatched_at": "place"}');
END
cmp_ok($node->sql('SELECT outbox_cleanup()'), '>', 3000, 'a round ends though a table always has more to delete');
is($node->sql('SELECT count(*) FROM behind'), 0, '... and all is deleted from the one behind it, whatever its columns are called');
$node->sql(q{SELECT outbox_drop_endpoint('endless', true)});

# While Redis is away nothing expires.
$redis->stop;
$node->sql(q{UPDATE inbox SET done_at = now() - interval '1 day' WHERE ref = 'm3'; SELECT outbox_enqueue('d', 'x')});
ok($node->poll_query_until('postgres', q{SELECT redis_state = 'down' FROM outbox.status}), 'Redis is away');
is($node->sql('SELECT outbox_cleanup()'), 0, '... and nothing expires');
$redis->start;
ok($node->wait_until_sent, 'it is back');
eventually { $node->sql('SELECT outbox_cleanup()') == 1 } '... and it does';

is($node->sql(q{SELECT outbox_drop_endpoint('ids'); SELECT outbox_drop_endpoint('inbox', force => true); SELECT count(*) FROM inbox}), "\n\n4",
	'endpoints whose messages are sent can be dropped, their tables stay');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';

done_testing();
