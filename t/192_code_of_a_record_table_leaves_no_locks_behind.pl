# Triggers of a custom record table that take session-level advisory locks, or release all of
# them, do no harm: the bookkeeper, whose session lasts, keeps its own lock and none of theirs.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<'EOSQL');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_unlock_all();
	PERFORM pg_advisory_lock(1000 * n + hashtext(NEW.message_id)) FROM generate_series(1, 100) n;
	IF NEW.message_id = 'fails' THEN
		RAISE division_by_zero;
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER meddle BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION meddle();
SELECT outbox_create_endpoint('own', record_table => 'inbox');
EOSQL

sub handle
{
	my ($msgid) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('$msgid', 'own'); SELECT outbox_commit(); COMMIT");
	return;
}

foreach my $msgid ('first', 'second', 'again')
{
	handle($msgid);
	is($node->sql("SELECT outbox_wait('$msgid', 'own', '3 min')"), 't', "$msgid: it is marked");
}
my $bookkeeper = $node->bookkeeper;
my $locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $bookkeeper";
eventually { $node->sql($locks) == 1 } 'the bookkeeper has its own lock only';
handle('fails');
eventually { $node->status('problem') =~ /division_by_zero/ } 'a trigger fails';
eventually { $node->sql($locks) == 1 } '... which leaves no locks either';
is($node->bookkeeper, $bookkeeper, '... in the same process');
done_testing();
