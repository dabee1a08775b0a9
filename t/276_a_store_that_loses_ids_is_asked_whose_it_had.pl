# What a store has lost is added again also where it is older than the watermark that is left: ids of an endpoint that
# was given the store when others had it already, whether or not the dispatcher ran meanwhile.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.replay_window = '1h'\noutbox.retention = '1h'");
my ($former, $store) = (Redis->new, Redis->new);

sub is_in { return $store->command('EXISTS', 'outbox:dedup:' . pack('H*', $_[0])); }

# Has the store keep what it has now, to go back to it.
sub save
{
	$store->stop;
	$store->save_data;
	$store->start;
	eventually { $node->status('problem') eq '' && $node->propagated eq 'all' } 'the store can be used';
	return;
}

sub loses_newest
{
	$store->kill9;
	$store->restore_data;
	$store->start;
	return;
}

$node->sql("SELECT outbox_create_endpoint('other', dedup_store => '@{[ $store->url ]}')");
$node->sql("SELECT outbox_create_endpoint('shop', dedup_store => '@{[ $former->url ]}')");
$node->process('of shop', undef, 'shop');
my $of_shop = $node->key_of('of shop');
$node->process('of other', undef, 'other');
my $of_other = $node->key_of('of other');
eventually { is_in($of_other) && $node->propagated eq 'all' } 'a store has an id of an endpoint';
save();
ok(!is_in($of_shop), '... and not the one of another endpoint, which is older');
$node->sql("SELECT outbox_alter_endpoint('shop', dedup_store => '@{[ $store->url ]}')");
eventually { is_in($of_shop) && $node->propagated eq 'all' } '... until that is given the store';
loses_newest();
eventually { is_in($of_shop) && $node->propagated eq 'all' } 'the store goes back to before that, and gets the id again';

$node->stop;
loses_newest();
$node->start;
eventually { is_in($of_shop) && $node->propagated eq 'all' } '... also where the dispatcher has started since';

done_testing();
