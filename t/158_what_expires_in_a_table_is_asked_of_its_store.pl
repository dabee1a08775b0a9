# A record in a custom record table expires while a transaction is open whose session has a
# longer outbox.replay_window than the dispatcher. The store of the endpoint has the id by
# then, and is asked once more.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = '100ms'\noutbox.replay_window = '1h'\n");
$node->sql('CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz); CREATE INDEX ON inbox (dispatched_at)');
$node->sql("SELECT outbox_create_endpoint('both', record_table => 'inbox', retention => '1 s', dedup_store => '" . $store->url . "', store_retention => '1 day')");

my $session = $node->session;
is($session->query_safe(q{BEGIN; SELECT outbox_begin('m', 'both')}), 't', 'a message is opened by a session that has a replay window of an hour');
$node->sql(q{ALTER DATABASE postgres SET outbox.replay_window = '1s'});
is($node->sql(q{BEGIN; SELECT outbox_begin('m', 'both'); SELECT outbox_commit(); COMMIT}), "t\n0", 'it is processed by another one');
eventually { $node->sql('SELECT count(*) FROM inbox') == 0 } '... whose record expires, because that of the database is a second now';
$session->{stderr} = '';
$session->query('SELECT outbox_commit()');
like($session->{stderr}, qr/has already been processed/, 'the first one finds the id in the store');
$session->quit;

done_testing();
