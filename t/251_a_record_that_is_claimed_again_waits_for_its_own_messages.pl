# A record in a custom record table is marked and forgotten, and its message is processed
# again while Redis is away. The first receipt, when it is read once more, does not mark
# the second record, whose message is not in Redis.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => 'outbox.cleanup_interval = -1');

foreach my $table ('own', 'other')
{
	$node->sql(<<"END");
CREATE TABLE $table (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON $table (dispatched_at);
SELECT outbox_create_endpoint('$table', record_table => '$table', retention => '1 hour');
END
}

# Handles messages in one transaction, so that their receipts are in one page.
sub handle
{
	my ($endpoint, @msgids) = @_;
	$node->sql('BEGIN;' . join('', map { "SELECT outbox_begin('$_', '$endpoint'); SELECT outbox_enqueue('d', '$_'); SELECT outbox_commit();" } @msgids) . 'COMMIT');
	return;
}

sub marked { return $node->sql(q{SELECT coalesce(string_agg(message_id, ' ' ORDER BY message_id), '') FROM own WHERE dispatched}); }

# A trigger of another table keeps it from being marked, so the watermark does not move.
$node->sql(<<'END');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
CREATE TRIGGER refuse BEFORE UPDATE ON other FOR EACH ROW EXECUTE FUNCTION refuse();
END
handle('other', 'x');
handle('own', 'again', 'once');
eventually { marked() eq 'again once' } 'two records are marked';
my $newest = 'SELECT number, published FROM (' . join(' UNION ALL ', map { "SELECT * FROM outbox.window_$_" } 0 .. 3) . ') w ORDER BY number DESC LIMIT 1';
eventually { $node->sql("SELECT published = number FROM ($newest) n") eq 't' } '... and it is noted that their messages are in Redis';
$redis->stop;
is($node->sql(q{SELECT outbox_forget('again', 'own')}), 't', 'Redis is away: one is forgotten');
handle('own', 'again');
$node->sql(q{UPDATE own SET dispatched = false WHERE message_id = 'once'});
my $dispatcher = $node->dispatcher;
$node->sql("SELECT pg_terminate_backend($dispatcher)");
eventually { marked() =~ /once/ } 'the next dispatcher has the receipts read again';
is(marked(), 'once', '... but the record that is claimed again waits for its own message');
$redis->start;
is($node->sql(q{SELECT outbox_wait('again', 'own', '3 min')}), 't', '... and is marked when that is in Redis');
is($node->sql(q{SELECT dispatched FROM own WHERE message_id = 'again'}), 't', '... it is');
$node->sql('DROP TRIGGER refuse ON other');
eventually { $node->sql('SELECT dispatched FROM other') eq 't' } 'the other table is marked, too';

# Another record of the same page is locked: all of the page is tried again later.
$redis->stop;
handle('own', 'later', 'locked');
my $session = $node->session;
$session->query_safe(q{BEGIN; SELECT FROM own WHERE message_id = 'locked' FOR UPDATE});
$redis->start;
eventually { marked() =~ /later/ } 'a record is marked, another of its page is locked';
$redis->stop;
is($node->sql(q{SELECT outbox_forget('later', 'own')}), 't', 'Redis is away: it is forgotten');
handle('own', 'later');
$session->query_safe('COMMIT');
eventually { marked() =~ /locked/ } 'the other one is marked when it is not locked any more';
unlike(marked(), qr/later/, '... but not the one that is claimed again');
$redis->start;
is($node->sql(q{SELECT outbox_wait('later', 'own', '3 min')}), 't', '... before its message is in Redis');
eventually { marked() eq 'again later locked once' } 'all are marked in the end';
$session->quit;

done_testing();
