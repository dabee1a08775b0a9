# Sentinels put a replica that lags in the place of its master, amid traffic. What it lacks is sent
# again, so that it has each message once and in order: whether the old master is gone, or hangs, and
# takes what is on its way to it before it hears that it is a replica now.

use strict;
use warnings FATAL => 'all';

use Ledger;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $first = Redis->new(tcp => 1, config => [ '--repl-diskless-sync-delay', '0' ]);
my $second = Redis->new(tcp => 1, config => [ '--repl-diskless-sync-delay', '0', '--replicaof', '127.0.0.1 ' . $first->port ]);
my @sentinels = map { start_sentinel() } 1 .. 3;

sub start_sentinel
{
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/sentinel.conf';

	append_to_file($file, sprintf <<'END', $first->port);
sentinel monitor outbox 127.0.0.1 %d 2
sentinel down-after-milliseconds outbox 700
sentinel failover-timeout outbox 3000
END
	return Redis->new(tcp => 1, sentinel => $file);
}

my $node = Outbox->create('main', redis => $first, conf => "outbox.command_timeout = '60s'");
$node->set('outbox.redis_url' => 'redis+sentinel://' . join(',', map { '127.0.0.1:' . $_->port } @sentinels) . '/outbox');
my @streams = map { "s$_" } 1 .. 5;
my $ledger = Ledger->new($node, $first, @streams);

# They cannot agree on anything until they know each other and the replica.
foreach my $sentinel (@sentinels)
{
	wait_until
	{
		my %master = @{ $sentinel->command('SENTINEL', 'MASTER', 'outbox') };
		$master{'num-other-sentinels'} == 2 && $master{'num-slaves'} == 1;
	};
}

# The replica gets nothing any more, the master is lost or hangs, and comes back.
sub promote
{
	my ($replica, $master, $is_lost) = @_;
	my $load = $ledger->start_load(100);

	wait_until { $replica->command('INFO', 'replication') =~ /master_link_status:up/ };
	$replica->command('CONFIG', 'SET', 'masterauth', 'wrong');
	$replica->command('CONFIG', 'SET', 'masteruser', 'nobody');
	$replica->command('CLIENT', 'KILL', 'TYPE', 'master');
	my $lags_by = $replica->count('s1') + 20;
	eventually { $master->count('s1') > $lags_by } 'a replica lags';
	$is_lost ? $master->kill9 : $master->pause;
	eventually { $replica->command('ROLE')->[0] eq 'master' } '... and takes the place of the master' . ($is_lost ? '' : ', which hangs');
	my $before = $replica->count('s1');
	eventually { $replica->count('s1') > $before + 20 } '... where messages go now';
	$replica->command('CONFIG', 'SET', $_, '') foreach 'masteruser', 'masterauth';
	$is_lost ? $master->start : $master->resume;
	eventually { $master->command('ROLE')->[0] eq 'slave' } '... which is its replica now';
	$load->stop;
	$ledger->{redis} = $replica;
	return $ledger->agrees('all messages are there, in order');
}

promote($second, $first, 0);
promote($first, $second, 1);
$_->stop foreach @sentinels;
$node->stop('fast');
done_testing();
