# Work on custom record tables that takes long rests afterwards. A table with which a round of
# expiry has finished does not: so what its statement took, in however many rounds, does not
# keep the records of any table from being marked.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = -1\n");

# Marking is slow, so it rests after each page of 1000 receipts; so is deleting.
$node->sql(<<'EOSQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(TG_ARGV[0]::real); RETURN NULL; END $$;
CREATE TRIGGER deleting BEFORE DELETE ON inbox FOR EACH STATEMENT EXECUTE FUNCTION take_time('1');
CREATE TRIGGER marking BEFORE UPDATE ON inbox FOR EACH STATEMENT EXECUTE FUNCTION take_time('0.2');
SELECT outbox_create_endpoint('own', record_table => 'inbox', retention => '1 hour');
EOSQL
eventually { $node->bookkeeper } 'the bookkeeper is there';

# On a machine that is busy with other things marking may take longer: several tries.
my $try = 0;
my $marks_soon = sub {
	$try++;
	my $begun = $node->sql('SELECT clock_timestamp()');
	$node->sql('SELECT outbox_cleanup()') foreach 1 .. 8;
	my $took = $node->sql("SELECT clock_timestamp() - '$begun'");
	$node->sql("DO \$\$ BEGIN FOR n IN 1 .. 1500 LOOP PERFORM outbox_begin('m $try ' || n, 'own'), outbox_commit(); END LOOP; END \$\$");
	wait_until { $node->sql('SELECT bool_and(dispatched) FROM inbox') eq 't' };
	return $node->sql("SELECT max(dispatched_at) - min(dispatched_at) < interval '$took' / 2 FROM inbox WHERE message_id LIKE 'm $try %'") eq 't';
};
eventually { $marks_soon->() } 'after many rounds of expiry that took long, records are marked as soon as before';

done_testing();
