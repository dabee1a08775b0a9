# A record stays locked while others are marked all the time: that it does is reported,
# and is not taken back until it is unlocked.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('own', retention => '1 hour', record_table => 'inbox');
SELECT outbox_pause();
END

my $handled = 0;

# Handles one more message; returns its id.
sub handle
{
	my $id = 'm' . ++$handled;
	$node->sql("BEGIN; SELECT outbox_begin('$id', 'own'), outbox_enqueue('d', 'x'), outbox_commit(); COMMIT");
	return $id;
}

sub is_marked { return $node->sql("SELECT dispatched FROM inbox WHERE message_id = '$_[0]'") eq 't'; }

sub is_reported { return $node->sql(q{SELECT count(*) FROM outbox.problems WHERE problem ~ 'endpoint "own" stay locked'}) eq '1'; }

# It is locked before its message can be sent.
my $locked = handle();
my $owner = $node->session;
$owner->query_safe("BEGIN; SELECT FROM inbox WHERE message_id = '$locked' FOR UPDATE");
$node->sql('SELECT outbox_resume()');

eventually { handle(); is_reported() } 'it is reported while others are handled';
my $other = handle();
eventually { is_marked($other) } 'another one is marked';
ok(is_reported(), '... and it is still reported');
$owner->query_safe('COMMIT');
eventually { is_marked($locked) } 'it is marked when it is unlocked';
eventually { !is_reported() } '... and not reported any more';
$owner->quit;

done_testing();
