# The dispatcher or the server dies before, within, or between the steps of a merge: the
# next dispatcher goes on, nothing is forgotten meanwhile, and in the end each key is kept
# once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Compaction;
use Redis;
use Test::More;

# Six segments are merged in three steps.
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<"END");
$Compaction::small_segments
outbox.record_segment_size = '400kB'
restart_after_crash = on
END

prepare($node);

# Kills a process of the server as soon as a merge has written so many pages.
$node->sql(<<'END');
CREATE PROCEDURE kill_in_merge(victim integer, pages integer) LANGUAGE plpgsql AS $$
DECLARE
	target integer;
BEGIN
	LOOP
		SELECT segment INTO target FROM outbox.ring WHERE ring = 'history' AND state = 'filling'
			AND pg_relation_size(('outbox.history_' || segment)::regclass) >= pages * 8192;
		EXIT WHEN FOUND;
		COMMIT;
		PERFORM pg_sleep(0.001);
	END LOOP;
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -KILL ' || victim);
END;
$$;
END

# Lets a merge begin and make so many steps of up to 32 pages; then it waits for the sessions
# that are returned.
sub merge_held_after
{
	my ($steps) = @_;

	for (;;)
	{
		my ($target, @sessions) = hold_merge($node, 6, $steps == 0 ? 0 : ($steps - 1) * 32 + 1);

		return @sessions if filling($node) eq $target && pages() <= $steps * 32;
		release_merge($node, @sessions);
	}
}

sub goes_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eventually { $node->answers } "$name: the server is there";
	is(unknown($node, 1, claimed($node), every => 20), 0, '... nothing is forgotten');
	eventually { is_at_rest($node) } '... the merge goes on';
	is(live_keys($node), claimed($node), '... each key is kept once');
	my $kept = $node->sql(q{SELECT string_agg(format('(SELECT sum(length(keys) / 16) FROM outbox.history_%s)', segment), ' + ')
		FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'});
	is($node->sql(q{SELECT sum(records) FROM outbox.compacted JOIN outbox.ring USING (segment) WHERE ring = 'history' AND state = 'quiet' AND endpoint = 'default'}),
		$node->sql("SELECT $kept"), '... and counted once, for its endpoint');
	return;
}

# Pages of the segment that is being filled.
sub pages
{
	return $node->sql(<<'END');
SELECT coalesce(max(pg_relation_size(('outbox.history_' || segment)::regclass)), 0) / 8192
FROM outbox.ring WHERE ring = 'history' AND state = 'filling'
END
}

my %crashes = (
	'dispatcher killed' => sub { $node->kill_dispatcher },
	'immediate stop' => sub { $node->stop('immediate'); $node->start },
	'fast stop' => sub { $node->stop('fast'); $node->start },
);

# Crashes after so many steps.
foreach (['dispatcher killed', 0], [ 'immediate stop', 0 ], [ 'dispatcher killed', 1 ], [ 'immediate stop', 2 ], [ 'fast stop', 1 ])
{
	my ($name, $steps) = @$_;
	my @holders = merge_held_after($steps);

	my $pages = pages();
	ok($pages >= $steps && $pages <= $steps * 32, "a merge has made $steps steps") or diag "$pages pages";
	$crashes{$name}->();

	# A psql that waited ends with its connection.
	foreach my $holder (@holders)
	{
		eval { $holder->quit };
	}
	goes_on($name);
}

# Kills within a step, or within the transaction that ends the merge.
foreach ([ 'dispatcher', 1 ], [ 'postmaster', 50 ], [ 'dispatcher', 66 ])
{
	my ($name, $pages) = @$_;
	my $victim = $name eq 'dispatcher' ? $node->dispatcher : $node->{_pid};
	my $killer = $node->session;
	my $log = $node->log_position;

	$killer->query_until(qr/waiting/, "\\echo waiting\nCALL kill_in_merge($victim, $pages);\n");

	# On a busy machine a merge may be over before its size is noticed: then there is another one.
	wait_until
	{
		eval { $node->psql('postgres', 'CALL fill(6)') };
		$name eq 'postmaster' ? !$node->answers : $node->log_since($log) =~ /was terminated by signal 9/;
	}
	or die "the $name is not killed";
	$killer->quit;
	$node->start_after_kill if $name eq 'postmaster';
	goes_on("$name killed at page $pages");
}
is(unknown($node, 1, claimed($node)), 0, 'in the end each message is known');
is(unknown($node, claimed($node) + 1, claimed($node) + 1000), 1000, '... and no other');

done_testing();
