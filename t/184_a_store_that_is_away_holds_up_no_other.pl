# Each store has a watermark of its own, and so have custom record tables: while one store
# is away, ids are propagated to the others, and records are marked. An endpoint whose ids
# have not been propagated is not dropped without force.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my %store = (away => Redis->new, here => Redis->new);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'");

$node->sql(<<'END_OF_SQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('own', record_table => 'inbox');
END_OF_SQL
$node->sql("SELECT outbox_create_endpoint('$_', dedup_store => '" . $store{$_}->url . "')") foreach sort keys %store;

# Handles a message of each endpoint. Whether its id is new is looked up before the store
# goes away.
my @sessions;
foreach my $i (1 .. 3)
{
	push @sessions, my $session = $node->session;
	$session->query_safe("BEGIN; SELECT outbox_begin('m$i', 'away'); SELECT outbox_enqueue('d', 'm$i')");
}
eventually { $node->status('problem IS NULL') eq 't' } 'two stores and a table';
$store{away}->stop;
foreach my $session (@sessions)
{
	$session->query_safe('SELECT outbox_commit(); COMMIT');
	$session->quit;
}
eventually { $node->status('problem') =~ /cannot be used/ } 'a store is away';
foreach my $i (1 .. 3)
{
	$node->sql("BEGIN; SELECT outbox_begin('m$i', '$_'); SELECT outbox_enqueue('d', 'm$i'); SELECT outbox_commit(); COMMIT") foreach 'here', 'own';
}
eventually { $store{here}->count_ids == 3 } '... the other one gets ids';
is($node->sql(q{SELECT outbox_wait('m3', 'own', '3 min')}), 't', '... and records in a table are marked');
is($redis->count('d'), 9, '... and messages are sent');

# If it were dropped now, its ids would be forgotten.
like($node->sql_error(q{SELECT outbox_drop_endpoint('away')}), qr/^55006: endpoint "away" has message ids that have not been propagated/,
	'an endpoint whose ids are not in its store is not dropped');
eventually { ($node->psql('postgres', q{SELECT outbox_drop_endpoint('own')}))[0] == 0 } '... one whose records are marked is';
$store{away}->start;
eventually { $store{away}->count_ids == 3 } 'the store is back, and gets its ids';
eventually { $node->status('problem IS NULL') eq 't' } '... and nothing is wrong';
eventually { ($node->psql('postgres', q{SELECT outbox_drop_endpoint('away')}))[0] == 0 } '... and its endpoint can be dropped';

done_testing();
