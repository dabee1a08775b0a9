# A transaction that was open while records expired is refused if it may not have seen one
# of them, whatever its session believes the retention to be: ALTER DATABASE reaches the
# dispatcher at once, and sessions that are connected never. For the same reason a record counts
# as long as the dispatcher keeps it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $redis_store = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.cleanup_interval = '100ms'\noutbox.replay_window = '1h'\noutbox.record_segment_size = '64kB'\n");
$node->sql('CREATE TABLE done (msgid text, handler text)');
$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
SELECT outbox_create_endpoint('tabled', record_table => 'inbox');
END
$node->sql("SELECT outbox_create_endpoint('stored', retention => '1 s', dedup_store => '" . $redis_store->url . "', store_retention => '1 day')");
$node->sql("SELECT outbox_create_endpoint('brief', dedup_store => '" . $redis_store->url . "')");

# The statements of a handler up to outbox_commit(), and after it.
sub open_message { my ($session, $msgid, $endpoint) = @_; return $session->query_safe("BEGIN; SELECT outbox_begin('$msgid', '$endpoint')"); }
sub work { my ($session, $msgid, $handler) = @_; return $session->query_safe("INSERT INTO done VALUES ('$msgid', '$handler')"); }

sub error_of
{
	my ($session) = @_;
	$session->{stderr} = '';
	$session->query('SELECT outbox_commit()');
	return $session->{stderr};
}

sub handle
{
	my ($msgid, $endpoint) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid', '$endpoint'); INSERT INTO done VALUES ('$msgid', 'other'); SELECT outbox_commit(); COMMIT");
	return;
}

sub all_expire
{
	my ($what) = @_;
	eventually { $node->sql('SELECT count(*) FROM outbox.records') == 0 } $what;
	return;
}

my %session = map { $_ => $node->session } 'default', 'stored', 'brief', 'tabled', 'serial';
is(open_message($session{default}, 'm', 'default'), 't', 'a message is opened by a session that keeps records for a week');
$session{serial}->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM done');
is(open_message($session{stored}, 'm', 'stored'), 't', '... and one of an endpoint that has a store');
is(open_message($session{brief}, 'm', 'brief'), 't', '... and of one whose store keeps ids for as long as the database keeps records');
is(open_message($session{tabled}, 'm', 'tabled'), 't', '... and of one that has a custom record table');
$node->sql(q{ALTER DATABASE postgres SET outbox.retention = '1s'; ALTER DATABASE postgres SET outbox.replay_window = '1s'});
handle('m', $_) foreach 'default', 'stored', 'brief', 'tabled';
handle('n', 'default');
all_expire('others process them, and their records expire after a second, because the database keeps them no longer');

work($session{default}, 'm', 'first');
like(error_of($session{default}), qr/could not claim message "m".*older than the retention/s, 'the first one is refused');
work($session{tabled}, 'm', 'first');
like(error_of($session{tabled}), qr/could not claim message "m".*older than the retention/s, '... and so is the one of the table');
eventually { $node->sql(q{BEGIN; SELECT outbox_begin('m', 'brief'); ROLLBACK}) eq 't' } 'a store has forgotten an id after that second, too';
work($session{brief}, 'm', 'first');
like(error_of($session{brief}), qr/could not claim message "m".*older than the retention/s, '... so that the transaction that opened it before is refused');
work($session{stored}, 'm', 'first');
like(error_of($session{stored}), qr/has already been processed/, '... and the other one is found in the store');
is($session{serial}->query_safe(q{SELECT outbox_begin('n', concurrency => 'optimistic')}), 't', 'a snapshot of before shows nothing of a record that has expired');
like(error_of($session{serial}), qr/could not claim message "n"/, '... so it is refused');
foreach my $session (values %session)
{
	$session->query('ROLLBACK');
	$session->{stderr} = '';
}
is($node->sql('SELECT DISTINCT handler FROM done'), 'other', 'nothing was done twice');

# What expires before a message is opened does not concern it, nor does what stays.
handle('o', 'default');
all_expire('a record expires before a message is opened');
is(open_message($session{default}, 'o', 'default'), 't', 'then the message is new');
work($session{default}, 'o', 'again');
is($session{default}->query_safe('SELECT outbox_commit()'), '0', '... and can be processed again');
$session{default}->query_safe('COMMIT');

# A session that believes in a second.
my $old = $node->session;
$node->sql(q{ALTER DATABASE postgres SET outbox.retention = '1h'});
eventually { $node->sql(q{SELECT retention = '1 hour' FROM outbox.endpoints WHERE name = 'default'}) eq 't' } 'the database keeps records for an hour from now on';
handle('p', 'default');
eventually { $node->sql(q{SELECT outbox_begin('fill ' || random() * i), outbox_commit() FROM generate_series(1, 300) i}) ne '' && $node->sql(q{SELECT state FROM outbox.records WHERE msgid = 'p'}) ne 'current' }
'a record is no longer in the current segment';
$node->wait_until_sent;
eventually { $node->sql(q{SELECT count(*) FROM outbox.ring WHERE ring <> 'log' AND state IN ('sealed', 'filling', 'quiet') AND
	(published_at IS NULL OR published_at > clock_timestamp() - interval '2 s')}) == 0 } '... but in one that was published more than a second ago';
is(open_message($old, 'p', 'default'), 'f', 'it counts also for a session that has a shorter retention yet');
is($old->query_safe('COMMIT; SHOW outbox.retention'), '1s', '... which it has');
$old->quit;

$_->quit foreach values %session;
done_testing();
