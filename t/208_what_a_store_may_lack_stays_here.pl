# What a PostgreSQL store is told again, it remembers again, also where it has the id from before
# and is about to forget that. And no record goes before a store has what it lacks, whichever
# dispatcher finds that out.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
restart_after_crash = on
outbox.retention = '30s'
outbox.replay_window = '1s'
outbox.cleanup_interval = -1
outbox.command_timeout = '60s'
outbox.connect_timeout = '60s'
END
my $server = Outbox->create('store', conf => <<'END');
outbox.redis_url = 'redis://127.0.0.1:1'
outbox.retention = '30s'
outbox.cleanup_interval = -1
END
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
$server->sql('CREATE DATABASE other');
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'other');

sub is_known { return $server->sql("SELECT outbox.store_contains('$_[0]')", $_[1] // 'postgres') eq 't'; }

# Check whether a segment of records has begun to expire.
sub is_published { return $_[0]->sql("SELECT outbox_cleanup() \\gset\nSELECT count(published_at) FROM outbox.ring WHERE ring = 'record'") > 0; }

# An id that a store has, and does not count any more, is new there.
my $key = '11111111111111111111111111111111';
$server->sql("SELECT outbox.store_add('{$key}')");
ok(is_known($key), 'a store knows an id');
eventually { is_published($server) } '... in a segment that is not written any more';
$server->set('outbox.retention' => '1s');
eventually { !is_known($key) } '... until its retention is over';
$server->sql("SELECT outbox.store_add('{$key}')");
ok(is_known($key), 'it is added again, and known again');
$server->sql('SELECT outbox_cleanup()');
ok(is_known($key), '... also when cleanup has removed what had expired');
$server->set('outbox.retention' => '1h');

done_testing();
