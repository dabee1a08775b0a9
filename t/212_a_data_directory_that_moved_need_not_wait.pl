# The lease identifies a data directory by its contents. When it is moved, as into a new
# container, its server publishes at once after a clean stop, and after a crash as soon as
# its lease has run out. A copy of it does not.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::RecursiveCopy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.takeover_delay = '1h'");
my $sent = 0;

sub sends
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	$sent++;
	return eventually { $redis->count('d') == $sent } $name;
}

sub move
{
	my $to = $node->{_basedir} . '_moved';
	rename $node->{_basedir}, $to or die "$to: $!";
	$node->{_basedir} = $to;
	return;
}

sends('a server sends');
$node->stop('fast');
move();
$node->start;
sends('stopped and moved, it goes on');
my $dispatcher = $node->dispatcher;
eventually { $redis->command('GET', $redis->key('lease')) =~ /process $dispatcher$/ } 'it has the lease';
$node->stop('immediate');
move();
$node->start;
sends('killed and moved, it goes on when its lease has run out');
$node->restart;
sends('... and after a restart in its new place');

# A copy, while no server has the lease.
my $copy = Outbox->new('copy');
$node->stop('fast');
PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $copy->data_dir);
chmod 0700, $copy->data_dir;
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port);
$copy->start;
eventually { $copy->status('dispatcher_state') eq 'waiting for the lease' } 'a copy waits for outbox.takeover_delay';
$node->start;
sends('... while the original goes on');
is($copy->status('dispatcher_state'), 'waiting for the lease', '... and the copy waits');

done_testing();
