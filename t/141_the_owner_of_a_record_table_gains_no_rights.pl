# The owner of a custom record table can make others run functions: callers, who may be
# superusers, and the bookkeeper. These functions run with the rights of the owner.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# An index whose predicate calls a function: reading the predicate calls it.
$node->sql(q{CREATE ROLE mallory LOGIN; SELECT outbox_grant('mallory', 'admin'); CREATE SCHEMA hers AUTHORIZATION mallory});
$node->sql(<<'END', 'postgres', extra_params => [ '-U', 'mallory' ]);
CREATE TABLE hers.calls (who text);
CREATE TABLE hers.inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON hers.inbox (dispatched_at);
CREATE FUNCTION hers.note() RETURNS void LANGUAGE sql AS 'INSERT INTO hers.calls VALUES (current_user)';
CREATE FUNCTION hers.spy(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM hers.note(); RETURN true; END $$;
CREATE INDEX ON hers.inbox (dispatched_at, note) WHERE hers.spy(1);
CREATE UNIQUE INDEX ON hers.inbox (message_id) WHERE hers.spy(2);
SELECT outbox_create_endpoint('own', record_table => 'hers.inbox');
END
sub callers { return $node->sql(q{SELECT string_agg(DISTINCT who, ' ' ORDER BY who) FROM hers.calls}); }
is(callers(), 'mallory', 'a function in a predicate of an index is called');

$node->sql('TRUNCATE hers.calls');
$node->sql(q{BEGIN; SELECT outbox_begin('m1', 'own'); SELECT outbox_enqueue('d', 'x'); SELECT outbox_commit(); COMMIT});
is(callers(), 'mallory', '... also when a superuser opens a message, with the rights of the owner');

$node->sql('TRUNCATE hers.calls');
$node->sql(q{SELECT count(*) FROM outbox.endpoints, outbox.records});
is(callers(), 'mallory', '... when one looks at the views');

$node->sql('TRUNCATE hers.calls');
$node->sql(q{SELECT outbox_alter_endpoint('own', record_table => 'hers.inbox')});
is(callers(), 'mallory', '... or sets the endpoint');

$node->sql('TRUNCATE hers.calls');
$node->sql(q{BEGIN; SELECT outbox_begin('m2', 'own'); SELECT outbox_commit(); COMMIT});
eventually { $node->sql(q{SELECT count(*) FROM outbox.records WHERE endpoint = 'own' AND state = 'dispatched'}) == 2 } 'the dispatcher marks';
is(callers(), 'mallory', '... with the rights of the owner');

# A trigger that reads the table through the views, when what is remembered of the table is out of date.
$node->sql(<<'END', 'postgres', extra_params => [ '-U', 'mallory' ]);
CREATE FUNCTION hers.look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN ANALYZE hers.inbox; PERFORM count(*) FROM outbox.endpoints; PERFORM count(*) FROM outbox.records; RETURN NEW; END $$;
CREATE TRIGGER look BEFORE INSERT ON hers.inbox FOR EACH ROW EXECUTE FUNCTION hers.look();
END
is($node->sql(qq{SET client_min_messages = error; BEGIN; SELECT outbox_begin('m$_', 'own'), outbox_commit(); COMMIT}), 't|0', 'a trigger that looks at the views does no harm') foreach 3 .. 5;

# A function in a predicate that has the endpoints read again, because they have changed, while a message is being opened.
# There are so many that what is read comes to where the former settings were.
$node->sql(q{SELECT count(outbox_create_endpoint('another-one-' || md5(n::text), retention => '1 h')) FROM generate_series(1, 100) n});
$node->sql(<<'END', 'postgres', extra_params => [ '-U', 'mallory' ]);
CREATE FUNCTION hers.wait(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_setting('hers.waits', true) = 'yes' THEN
		PERFORM pg_advisory_xact_lock(1);
		PERFORM count(*) FROM outbox.endpoints;
	END IF;
	RETURN true;
END $$;
CREATE INDEX waits ON hers.inbox (dispatched_at) WHERE hers.wait(1);
END
my ($holder, $opener) = ($node->session, $node->session);
$holder->query_safe('SELECT pg_advisory_lock(1)');
$opener->query_safe(q{SET hers.waits = 'yes'; SET client_min_messages = error; BEGIN});
$opener->query_until(qr/begun/, "\\echo begun\nSELECT outbox_begin('m8', 'own');\n");
eventually { $node->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) eq '1' } 'a function in a predicate waits';
$node->sql(q{SELECT outbox_alter_endpoint('own', retention => '2 h')}); # its row is behind the others now
$holder->query_safe('SELECT pg_advisory_unlock(1)');
is($opener->query_safe('SELECT outbox_commit(); COMMIT'), "t\n0", '... and reads the endpoints again: the message is that of the same endpoint');
$_->quit foreach $holder, $opener;
$node->sql('DROP INDEX hers.waits');

# A function in a predicate that opens a message while another one is being opened.
$node->sql(q{SELECT outbox_grant('mallory')});
$node->sql(<<'END', 'postgres', extra_params => [ '-U', 'mallory' ]);
CREATE FUNCTION hers.meddle(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_setting('hers.meddles', true) = 'yes' THEN
		BEGIN PERFORM public.outbox_begin('hers'); EXCEPTION WHEN object_not_in_prerequisite_state THEN PERFORM hers.note(); END;
	END IF;
	RETURN true;
END $$;
CREATE INDEX ON hers.inbox (dispatched_at) WHERE hers.meddle(1);
END
$node->sql('TRUNCATE hers.calls');
$node->sql(q{SET hers.meddles = 'yes'; BEGIN; SELECT outbox_begin('m6', 'own'), outbox_commit(); COMMIT});
is($node->sql(q{SELECT string_agg(msgid, ' ') FROM outbox.records WHERE msgid IN ('m6', 'hers')}), 'm6', 'a function in a predicate cannot open another message meanwhile');
is(callers(), 'mallory', '... it gets an error');

done_testing();
