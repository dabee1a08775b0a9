# The script names each refused message once, in order. An answer that does not comes from
# something else: no message is deferred because of it, let alone twice.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Test::More;

sub refuse
{
	my ($client, $command, @words) = @_;
	return undef unless $command eq 'EVALSHA' and Impostor::messages(@words);
	return "*3\r\n:0\r\n" . Impostor::bulk('WRONGTYPE of no key') . "*2\r\n:0\r\n:0\r\n";
}

my $impostor = Impostor->new(twice => \&refuse);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $impostor->url('twice') . "'");

$node->sql(q{SELECT outbox_enqueue_many('d', ARRAY['a', 'b'])});
eventually { $node->status(q{coalesce(redis_error, '')}) =~ /WRONGTYPE of no key/ } 'such an answer closes the link';
is($node->sql('SELECT count(*) FROM outbox.deferred'), 0, 'nothing is deferred');
is($node->status('pending'), 2, 'both messages are pending');

done_testing();
