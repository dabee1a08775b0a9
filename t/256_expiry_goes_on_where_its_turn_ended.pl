# A table whose turn in a round of expiry is over, because a trigger keeps many records and
# takes its time, goes on in the next round where it was: what is behind these is deleted.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\n");

$node->sql(<<'EOSQL');
CREATE TABLE inbox (message_id text COLLATE "C" PRIMARY KEY, dispatched boolean NOT NULL DEFAULT false, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.message_id NOT LIKE 'kept%' THEN
		RETURN OLD;
	END IF;
	PERFORM pg_sleep(0.002);
	RETURN NULL;
END
$$;
CREATE TRIGGER keep BEFORE DELETE ON inbox FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO inbox SELECT 'kept ' || i, true, now() - interval '2 days' + i * interval '1 s' FROM generate_series(1, 10500) i;
INSERT INTO inbox SELECT 'old ' || i, true, now() - interval '1 day' FROM generate_series(1, 10) i;
SELECT outbox_create_endpoint('own', record_table => 'inbox', retention => '1 hour');
EOSQL
eventually { $node->bookkeeper } 'the bookkeeper is there';
is($node->sql('SELECT outbox_cleanup()'), 0, 'a round ends before it has tried all that a trigger keeps');
is($node->sql('SELECT outbox_cleanup()'), 10, '... and the next one deletes what is behind it');
is($node->sql('SELECT count(*) FROM inbox'), 10500, '... and keeps the others');

done_testing();
