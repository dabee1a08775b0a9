# The stream of a destination changes while a message for the former one waits for its hash slot,
# and the number of partitions changes when that is sent; the server goes down before it has
# noted so. What the former stream loses comes to it again, though it has to wait before.

use strict;
use warnings FATAL => 'all';

use KillPoints;
use Outbox;
use RedisCluster;
use Test::More;

my $cluster = RedisCluster->new(replicas => 0, fails_after => 3000);
my $node = create_with_kill_points('main', redis => $cluster, conf => "outbox.retry_delay = '50ms'\noutbox.connect_timeout = '2s'\noutbox.command_timeout = '2s'\n");
my $id = $node->sql('SELECT id FROM outbox.instance');
my %in_use = map { $cluster->index_of("outbox:$_:$id") => 1 } 'lease', 'fence';
my ($away) = grep { !$in_use{$_} } 0 .. 2;
sub is_elsewhere { my ($stream) = @_; return $cluster->index_of($stream) != $away; }
my ($first) = grep { !is_elsewhere($_) } map { "first:$_" } 1 .. 100;
my ($second) = grep { is_elsewhere($_) } map { "second:$_" } 1 .. 100;
my ($third) = grep { is_elsewhere("$_:0") && is_elsewhere("$_:1") } map { "third:$_" } 1 .. 100;
my $key = 'a customer';

sub order { my ($body) = @_; $node->sql("SELECT outbox_enqueue('orders', '$body', key => '$key')"); return; }
sub direct { my ($how) = @_; $node->sql("SELECT outbox_set_destination('orders', $how)"); return; }
sub mappings { return $node->sql(q{SELECT count(DISTINCT after_window) FROM outbox.mapping WHERE dest = 'orders'}); }

direct("stream => '$first'");
order('1');
eventually { $cluster->sequence($first) eq '1' } 'a message comes to the first stream';
$cluster->node($away)->stop;
order('2');
direct("stream => '$second'");
eventually { mappings() == 2 } 'while one waits for it the destination gets another stream';
order('3');
eventually { $cluster->sequence($second) eq '3' } '... which the next one comes to';
arm($node, 'closing_written', 'server');
direct("stream => '$third', partitions => 2");
$cluster->node($away)->start;
$cluster->wait_until_ok;
ok(wait_until { fired($node) }, 'when all is sent there are partitions; then the server goes down');
$node->append_conf('postgresql.conf', 'outbox.dispatch = off');
revive($node, 'server') or BAIL_OUT('the server is gone');
my $windows = join ' UNION ALL ', map { "SELECT * FROM outbox.window_$_" } 0 .. 3;
is($node->sql("SELECT count(*) > 0 FROM ($windows) w WHERE messages > 0 AND number > (SELECT max(published) FROM ($windows) w)"), 't', '... and does not know what was sent');
is(mappings(), 3, '... but both changes');

# What was sent to the first stream waits, and comes back there.
$cluster->node($away)->command('FLUSHALL');
$node->sql(q{SELECT outbox_pause('orders')});
$node->set('outbox.dispatch' => 'on');
eventually { $node->status('deferred') == 2 } 'what the first stream has lost waits';
$node->sql(q{SELECT outbox_resume('orders')});
eventually { $cluster->sequence($first) eq '1 2' } '... and comes to it again' or diag $cluster->sequence("$third:" . $cluster->slot_of($key) % 2);
done_testing();
