# If the user of the dispatcher lacks a permission in Redis, outbox.problems says that it is
# to be given it, and not that Redis is to be repaired. Likewise if Redis has as many
# clients as it may have. The problem ends when that is done.

use strict;
use warnings FATAL => 'all';

use IO::Handle;
use IO::Socket::UNIX;
use Outbox;
use Redis;
use Test::More;

my @permissions = qw(on >password ~outbox:* ~d +get +set +del +pexpire +type +xadd +eval +evalsha +script|load +info +select);

my $redis = Redis->new(tcp => 1);

# permit(WITHOUT): gives the user all permissions but that one.
sub permit
{
	my ($without) = @_;
	$redis->command('ACL', 'SETUSER', 'outbox', 'reset', grep { $_ ne $without } @permissions);
	return;
}

permit('');
my $node = Outbox->create('main', redis => $redis, conf => "outbox.redis_url = '@{[ $redis->tcp_url('outbox:password@') ]}'");
$node->sends($redis, 1, 'with all permissions');

sub problem { return $node->sql(q{SELECT string_agg(kind || ': ' || problem, ' ' ORDER BY kind) FROM outbox.problems}); }

foreach my $without (qw(+get +set +evalsha +script|load ~outbox:*))
{
	permit($without);
	$redis->command('SCRIPT', 'FLUSH');
	$redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	eventually { problem() =~ /^redis down: .*\. Give the user in Redis the permissions that it lacks; / } "without $without it is said which to give"
		or diag problem();
	permit('');
	eventually { problem() eq '' } '... and that ends the problem';
}

# This session is the only one, and Redis takes no other.
my $session = IO::Socket::UNIX->new(Peer => $redis->socket) or die "could not connect to Redis: $!";
$session->printflush("CONFIG SET maxclients 1\r\nCLIENT KILL TYPE normal SKIPME yes\r\n");
eventually { problem() =~ /^redis down: .*\. Raise maxclients of Redis, / } 'where no more clients may connect, it is said what to raise'
	or diag problem();
$session->printflush("CONFIG SET maxclients 1000\r\n");
eventually { problem() eq '' } '... and that ends the problem';
$node->sends($redis, 2, 'messages are sent');

done_testing();
