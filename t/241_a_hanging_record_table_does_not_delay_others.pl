# The owner of a record table whose trigger hangs alters it again and again, so that it is
# tried each time: records of other tables are marked, and expire, all the same.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $node = Outbox->create('main', redis => Redis->new, conf => 'outbox.cleanup_interval = -1');

$node->create_hang;
$node->sql(<<'END_OF_SQL');
CREATE TABLE first (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON first (dispatched_at);
CREATE TABLE hangs (LIKE first INCLUDING ALL);
CREATE TABLE last (LIKE first INCLUDING ALL);
CREATE TRIGGER hang BEFORE UPDATE ON hangs FOR EACH ROW EXECUTE FUNCTION hang();
SELECT outbox_create_endpoint(name, record_table => name::regclass, retention => '1 hour') FROM unnest('{first,hangs,last}'::text[]) name;
END_OF_SQL
$node->sql("BEGIN; SELECT outbox_begin('m', '$_'); SELECT outbox_enqueue('d', '$_'); SELECT outbox_commit(); COMMIT") foreach 'hangs', 'first', 'last';

# Which of the other tables comes behind it is not defined.
eventually {
	$node->sql('ALTER TABLE hangs SET (fillfactor = 90)');
	$node->sql('SELECT (SELECT dispatched FROM first) AND (SELECT dispatched FROM last)') eq 't';
} 'tables before and behind one that hangs are marked';
is($node->sql('SELECT dispatched FROM hangs'), 'f', '... which is not');
is($node->status('pending'), 0, '... and messages are sent');

# A trigger that ends the process by an error does no more harm.
$node->sql(<<'END_OF_SQL');
CREATE OR REPLACE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('exit_on_error', 'on', false);
	RAISE EXCEPTION 'gone';
END
$$;
END_OF_SQL
$node->sql("BEGIN; SELECT outbox_begin('n', '$_'); SELECT outbox_enqueue('d', '$_'); SELECT outbox_commit(); COMMIT") foreach 'hangs', 'first', 'last';
eventually {
	$node->sql('ALTER TABLE hangs SET (fillfactor = 90)');
	$node->sql('SELECT (SELECT bool_and(dispatched) FROM first) AND (SELECT bool_and(dispatched) FROM last)') eq 't';
} 'a trigger ends the process: others are marked';

done_testing();
