# The ids of an endpoint come also into a store that other endpoints had before, where it takes
# the place of the endpoint's own: those that the log still has, and those that its own refuses.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
restart_after_crash = on
outbox.replay_window = '1s'
outbox.cleanup_interval = -1
END
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
$server->sql('CREATE DATABASE other');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'other');
my $url = $server->store_url('shard');
my $other_url = $url =~ s{/postgres\?}{/other?}r;
my ($full, $store) = (Redis->new, Redis->new);

sub is_known { return $server->sql("SELECT outbox.store_contains('$_[0]')", $_[1] // 'postgres') eq 't'; }
sub is_in { return $_[0]->command('EXISTS', 'outbox:dedup:' . pack('H*', $_[1])); }

# Endpoints leave their PostgreSQL store for another one, one by one.
$node->sql("SELECT outbox_create_endpoint(e, dedup_store => '$url') FROM unnest('{first,second}'::text[]) e");
$node->process("of $_", undef, $_) foreach qw(first second);
my ($first, $second) = map { $node->key_of("of $_") } qw(first second);
eventually { is_known($first) && is_known($second) && $node->propagated eq 'all' } 'ids of two endpoints are in their store';
$node->sql("SELECT outbox_alter_endpoint('first', dedup_store => '$other_url')");
eventually { is_known($first, 'other') && $node->propagated eq 'all' } 'one of the endpoints gets another store: so does its id';
ok(!is_known($second, 'other'), '... and no id of another endpoint');
$node->sql("SELECT outbox_alter_endpoint('second', dedup_store => '$other_url')");
eventually { is_known($second, 'other') } 'the other endpoint follows: so does its id';
eventually { $node->propagated eq 'all' } '... which is noted';

# An id that its own store refuses comes into the one that takes its place, and counts as
# propagated only then.
$node->sql("SELECT outbox_create_endpoint('third', dedup_store => '@{[ $full->url ]}', retention => '1 s', store_retention => '1 h')");
$node->sql("SELECT outbox_create_endpoint('fourth', dedup_store => '@{[ $store->url ]}')");
$node->process('of fourth', undef, 'fourth');
my $fourth = $node->key_of('of fourth');
eventually { is_in($store, $fourth) && $node->propagated eq 'all' } 'a store has an id of an endpoint';
$full->command('CONFIG', 'SET', 'maxmemory', '1');
$node->process('of third', undef, 'third');
my $third = $node->key_of('of third');
eventually { $node->status('problem') =~ /deduplication store.*used memory/ } 'another one is full, and refuses one of another endpoint';
$node->sql("SELECT outbox_alter_endpoint('third', dedup_store => '@{[ $store->url ]}')");
eventually { $node->propagated eq 'all' } '... which gets the first one in place of it: all ids count as propagated';
ok(is_in($store, $third), '... and that one has the id');
ok(!is_in($full, $third), '... which that one never had');
$node->sql("SELECT outbox_alter_endpoint('default', retention => '1 s')");
$node->set('outbox.retention' => '1s', 'outbox.cleanup_interval' => '100ms');
eventually { $node->sql(q{SELECT count(*) FROM outbox.records WHERE msgid = 'of third'}) == 0 } 'its record expires';
is($node->process('of third', undef, 'third'), 'f', '... and it is a duplicate');

done_testing();
