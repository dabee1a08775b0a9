# Both rings rotate while sessions race for the same messages and others stay open all
# the time: rotation goes on, and no message is claimed twice.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.retention = '4s'
outbox.replay_window = '1s'
outbox.cleanup_interval = '100ms'
END

# A handler that gives up when it loses the race, as a client that gets 23505 would.
$node->sql(<<'END');
CREATE TABLE claimed (msgid text);
CREATE FUNCTION handle(id text, mode text, pause float) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	violated text;
BEGIN
	IF NOT outbox_begin(id, concurrency => mode) THEN
		RETURN false;
	END IF;
	INSERT INTO claimed VALUES (id);
	PERFORM outbox_enqueue('claims', id);
	PERFORM pg_sleep(pause);
	PERFORM outbox_commit();
	RETURN true;
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
	IF violated <> 'outbox_record_claimed' THEN
		RAISE;
	END IF;
	RETURN false;
END;
$$;
END

# Ids are used for a twentieth of a second, much less than the retention; all sessions
# try the same three. A transaction that is interrupted for as long as the retention gets 40001
# and tries again, with the ids of that time.
my @racers = map {
	my ($isolation, $mode) = @$_;
	<<END } [ 'READ COMMITTED', 'optimistic' ], [ 'READ COMMITTED', 'pessimistic' ], [ 'REPEATABLE READ', 'optimistic' ], [ 'SERIALIZABLE', 'pessimistic' ];
\\set r random(1, 3)
BEGIN ISOLATION LEVEL $isolation;
SELECT handle((floor(extract(epoch FROM clock_timestamp()) * 20) * 10 + :r)::text, '$mode', 0.002);
COMMIT;
END
# All wait for one session that may roll back, and then claim at the same moment.
my $storm_script = <<'END';
\set outcome random(1, 2)
BEGIN;
SELECT handle((floor(extract(epoch FROM clock_timestamp()) * 150) * 10)::text, 'pessimistic', 0);
\if :outcome = 1
COMMIT;
\else
ROLLBACK;
\endif
END
my $holder = <<'END';
\set n random(1, 9000000000000000)
BEGIN;
SELECT handle('holder ' || :n, 'optimistic', 0);
\sleep 300 ms
COMMIT;
END

sub generation
{
	my ($ring) = @_;
	return $node->sql("SELECT max(generation) FROM outbox.ring WHERE ring = '$ring'");
}

my %start = map { $_ => generation($_) } 'log', 'record';
my %current = (log => {}, record => {});
my @again = (args => [ '--max-tries', 1000 ]);
my $holders = $node->start_load(clients => 10, scripts => [$holder], @again);
my $racers = $node->start_load(clients => 6, scripts => \@racers, @again);
my $storm = $node->start_load(clients => 10, scripts => [$storm_script], @again);

# Most segments must have been written, and both rings have rotated since.
eventually
{
	foreach (split /\n/, $node->sql(q{SELECT ring, segment FROM outbox.ring WHERE state = 'current'}))
	{
		my ($ring, $segment) = split /\|/;
		$current{$ring}{$segment} = 1;
	}
	keys %{ $current{log} } >= 3
	  and keys %{ $current{record} } >= 4
	  and generation('log') > $start{log} + 20
	  and generation('record') > $start{record} + 20;
}
'both rings rotate under load';
is($node->sql('SELECT count(*) - count(DISTINCT (endpoint, msgid)) FROM outbox.records'), 0,
	'no message has two records');
$_->stop foreach $racers, $storm, $holders;
unlike($racers->{error} . $storm->{error} . $holders->{error}, qr/aborted/, 'no client fails');

my @claimed = split /\n/, $node->sql('SELECT msgid FROM claimed');
my %times;
$times{$_}++ foreach @claimed;
is(scalar(grep { $_ > 1 } values %times), 0, 'none was claimed twice (' . @claimed . ')');

ok($node->wait_until_sent, 'everything is sent');
is_exactly_once([ $redis->bodies('claims') ], \@claimed, 'what was claimed is in Redis, once');

done_testing();
