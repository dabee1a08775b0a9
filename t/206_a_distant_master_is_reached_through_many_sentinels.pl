# Each of several sentinels has a share of the time to connect. The master that they all name
# has more than that, so it is reached however many they are, also if it is distant.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Proxy;
use Redis;
use Test::More;

# AUTH and ROLE take 1.2 s in all, a fifth of the time is 1 s, half of it 2.5 s.
my $redis = Redis->new(config => [ '--requirepass', 'pw' ]);
$redis->log_in_with('pw');
my $proxy = Proxy->new($redis);
$proxy->delay(600);
my $port = $proxy->port;
my @sentinels = map { Impostor->new(plain => sub { return $_[1] eq 'SENTINEL' ? "*2\r\n" . Impostor::bulk('127.0.0.1') . Impostor::bulk($port) : undef; }) } 1 .. 5;
my $url = 'redis+sentinel://:pw@' . join(',', map { '127.0.0.1:' . $_->port } @sentinels) . '/mymaster';
my $node = Outbox->create('main', extension => 0, conf => "outbox.connect_timeout = '5s'\noutbox.command_timeout = '60s'\noutbox.redis_url = '$url'\n");

$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_enqueue('d', 'x')});
eventually { $redis->count('d') == 1 } 'the master is connected to, and the message is sent';

done_testing();
