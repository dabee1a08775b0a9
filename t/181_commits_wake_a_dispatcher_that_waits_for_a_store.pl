# While the dispatcher waits for a slow store, messages of other endpoints are sent as
# soon as they are committed, and not after a timeout.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $proxy = Proxy->new($store);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '1h'\noutbox.connect_timeout = '1h'\noutbox.poll_interval = '10s'");

$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $proxy->url . "')");
$node->sql('CREATE TABLE took (ms float)');
$node->sql('CREATE DATABASE without_store');
$node->sql('CREATE EXTENSION outbox; CREATE TABLE took (ms float)', 'without_store');

# Sends messages one after the other, each when the one before is in Redis, and returns
# how long half of them took at most. A dispatcher that is not woken looks for messages every
# 100 ms: what is committed right after another message was sent waits for most of that. What
# is committed late, just before it looks, seems fast all the same, so the fastest tells nothing.
# On a machine that is busy with other things half of them may take long, too: it is compared with
# a database that has no store, and tried again.
sub median
{
	my ($name, $database) = @_;
	$node->sql(<<"END_OF_SQL", $database);
TRUNCATE took;
DO \$\$
DECLARE
	start timestamptz;
BEGIN
	FOR i IN 1..25 LOOP
		PERFORM outbox_begin('$name ' || i);
		PERFORM outbox_enqueue(current_database(), '$name');
		PERFORM outbox_commit();
		start := clock_timestamp();
		COMMIT;
		PERFORM outbox_wait('$name ' || i, timeout => '170 s');
		INSERT INTO took VALUES (extract(epoch FROM clock_timestamp() - start) * 1000);
		COMMIT;
	END LOOP;
END
\$\$
END_OF_SQL
	return $node->sql('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms) FROM took', $database);
}

median('warm');
$proxy->hold('EVAL');
$node->sql(q{BEGIN; SELECT outbox_begin('m', 'stored'), outbox_enqueue('d', 'm'), outbox_commit(); COMMIT});
eventually { $proxy->held == 1 } 'the store is being told of an id, and does not answer';
my $rounds = 0;
eventually { median('meanwhile ' . ++$rounds) < 50 + median("meanwhile $rounds", 'without_store') } 'a commit meanwhile wakes the dispatcher';
is($redis->count('postgres'), 25 + 25 * $rounds, '... all is sent');
is($proxy->held, 1, '... and the store has still not answered');
$proxy->pass;
$proxy->release($_) foreach 1 .. $proxy->opened;
eventually { $node->status('problem IS NULL') eq 't' } 'it answers';

done_testing();
