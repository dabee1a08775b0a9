# Several deduplication stores that accept connections and keep silent do not take turns in
# holding up another one: all else has as much time as they.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $ids = 50_000;
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '1s'\noutbox.connect_timeout = '60s'\n");
my $healthy = Redis->new;
my $behind = Redis->new;
my @silent = map { Proxy->new($behind) } 1 .. 3;

$node->sql("SELECT outbox_create_endpoint('healthy', dedup_store => '" . $healthy->url . "')");
$node->sql("SELECT outbox_create_endpoint('silent$_', dedup_store => '" . $silent[$_]->url . "')") foreach 0 .. 2;
eventually { $node->status('problem IS NULL') eq 't' } 'four stores';
$_->hold('$') foreach @silent;
eventually { $node->status('problem') =~ /cannot be used/ } 'three of them keep silent';

sub attempts
{
	my $n = 0;
	$n += $_->opened foreach @silent;
	return $n;
}

# A statement adds as many ids as a page has, so what follows takes fifty turns at least. An
# attempt takes a second, and what needs longer than that may see as many as half of its seconds.
my $before = attempts();
my $begun = time;
$node->sql(<<"EOSQL");
DO \$\$ BEGIN
	FOR i IN 1 .. $ids LOOP
		PERFORM outbox_begin('m' || i, 'healthy');
		PERFORM outbox_commit();
	END LOOP;
END \$\$
EOSQL
eventually { $healthy->count_ids == $ids } 'the other one gets all ids';
cmp_ok(attempts() - $before, '<', 10 + 0.55 * (time - $begun), '... without an attempt to use a silent one for each of its turns');
is($node->sql("SELECT string_agg(problem, '') ~ 'cannot be used' FROM outbox.problems"), 't', '... and the silent ones are reported');

done_testing();
