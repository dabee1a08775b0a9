# If the URL names sentinels, they are asked for the master; a sentinel that is down or
# does not know the master is passed over; after a failover messages go to the new master.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

# Three sentinels, two of which must agree; a sentinel rewrites its own file.
sub start_sentinel
{
	my ($master) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/sentinel.conf';

	append_to_file($file, sprintf <<'END', $master->port);
sentinel monitor outbox 127.0.0.1 %d 2
sentinel down-after-milliseconds outbox 500
sentinel failover-timeout outbox 3000
END
	return Redis->new(tcp => 1, sentinel => $file);
}

my $master = Redis->new(tcp => 1);
my $replica = Redis->new(tcp => 1, config => [ '--replicaof', '127.0.0.1 ' . $master->port ]);
my @sentinels = map { start_sentinel($master) } 1 .. 3;
my $nobody = PostgreSQL::Test::Cluster::get_free_port();
my $url = 'redis+sentinel://' . join(',', map { "127.0.0.1:$_" } $nobody, map { $_->port } @sentinels);

my $node = Outbox->create('main', redis => $master);
$node->set('outbox.redis_url' => "$url/outbox");
$node->sql(q{SELECT outbox_enqueue('sentinel', 'before'::text)});
eventually { $master->count('sentinel') == 1 } 'the master that the sentinels name gets messages';
eventually { $replica->count('sentinel') == 1 } 'its replica has them too';


# They cannot agree on anything until they know each other and the replica.
foreach my $sentinel (@sentinels)
{
	wait_until
	{
		my %master = @{ $sentinel->command('SENTINEL', 'MASTER', 'outbox') };
		$master{'num-other-sentinels'} == 2 && $master{'num-slaves'} == 1;
	};
}
$master->kill9;
$node->sql(q{SELECT outbox_enqueue('sentinel', 'after'::text)});
eventually { $replica->count('sentinel') == 2 } 'after a failover dispatch goes on at the new master';
is_deeply([ $replica->bodies('sentinel') ], [ 'before', 'after' ], '... each message once, in order');

$node->set('outbox.redis_url' => "$url/stranger");
$node->sql(q{SELECT outbox_enqueue('sentinel', 'lost'::text)});
eventually { $node->status('problem') =~ /a sentinel does not know the master/ }
	'a name that no sentinel knows is said in outbox.status';

$_->stop for @sentinels;
$node->stop('fast');
done_testing();
