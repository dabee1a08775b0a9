# Segments of records fill up, are compacted and merged over several levels, while
# sessions race for the same messages and old ones are delivered again all the time: no
# message is claimed twice, none is forgotten, and in the end each key is kept once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => $Compaction::small_segments);
prepare($node);

# A handler that gives up when it loses the race, as a client that gets 23505 would. Each
# call handles some ids that follow each other.
$node->sql(<<'END');
CREATE TABLE winners (id bigint, mode text);
CREATE FUNCTION handle(first bigint, mode text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	violated text;
BEGIN
	FOR id IN first .. first + 19 LOOP
		BEGIN
			IF outbox_begin('m' || id, concurrency => mode) THEN
				INSERT INTO winners VALUES (id, mode);
				PERFORM outbox_commit();
			END IF;
		EXCEPTION WHEN unique_violation THEN
			GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
			IF violated <> 'outbox_record_claimed' THEN
				RAISE;
			END IF;
		END;
	END LOOP;
END;
$$;
END

# There are 4000 new ids in a second; all sessions take those of the last fifth of a
# second. The last script delivers again any that came earlier.
my $started = $node->sql('SELECT extract(epoch FROM clock_timestamp())');
my $newest = "SELECT floor((extract(epoch FROM clock_timestamp()) - $started) * 4000)::bigint";
my @scripts = map {
	my ($isolation, $mode, $back) = @$_;
	<<END } [ 'READ COMMITTED', 'optimistic', 800 ], [ 'READ COMMITTED', 'pessimistic', 800 ], [ 'REPEATABLE READ', 'optimistic', 800 ], [ 'SERIALIZABLE', 'pessimistic', 800 ], [ 'READ COMMITTED', 'optimistic', 1_000_000 ];
\\set back random(1, $back)
$newest AS newest \\gset
BEGIN ISOLATION LEVEL $isolation;
SELECT handle(greatest(1, :newest - :back % (:newest + 1)), '$mode');
COMMIT;
END

my $load = $node->start_load(clients => 6, scripts => \@scripts, args => [ '--max-tries', 1000 ]);
eventually
{
	$node->sql(q{SELECT coalesce(max(level), 0) >= 2 AND sum(keys) > 30000 FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'}) eq 't'
}
'records are compacted, and what is compacted is merged, under load';
$load->stop;
unlike($load->{error}, qr/aborted/, 'no client fails');

my $claimed = $node->sql('SELECT count(*) FROM winners');
is($node->sql('SELECT count(*) - count(DISTINCT id) FROM winners'), 0, "no message was claimed twice ($claimed)");
is($node->sql('SELECT count(DISTINCT mode) FROM winners'), 2, '... in either mode');

sub forgotten { return $node->sql('BEGIN; SELECT sum(claim(id, id)) FROM winners; ROLLBACK'); }

is(forgotten(), 0, 'no message is forgotten');
eventually { $node->sql('SELECT count(*) FROM outbox.records') < $claimed / 2 } '... though most of them are compacted';
is($node->sql('BEGIN; SELECT claim(1000000000, 1000000999); ROLLBACK'), 1000, 'new messages are new');

# Everything is compacted and merged.
eventually { is_at_rest($node) } 'compaction comes to an end';
is(live_keys($node), $claimed, 'each key is kept once');
is(forgotten(), 0, '... and found');
$node->restart;
is(forgotten(), 0, '... also after a restart');
is($node->sql('BEGIN; SELECT claim(1000000000, 1000000999); ROLLBACK'), 1000, '... and nothing else');

done_testing();
