# The script names each refused message once, in order. An answer that does not comes from
# something else: no message is deferred because of it, let alone twice.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir();

# Answers so on one connection, and not at all on the next one: a message on which the link
# fails again and again would be deferred for that.
sub refuse
{
	my ($client, $command, @words) = @_;
	return undef unless $command eq 'EVALSHA' and Impostor::messages(@words);
	if (-e "$folder/answered")
	{
		PostgreSQL::Test::Utils::append_to_file("$folder/asked_again", '');
		sleep 1 while 1;
	}
	PostgreSQL::Test::Utils::append_to_file("$folder/answered", '');
	return "*3\r\n:0\r\n" . Impostor::bulk('WRONGTYPE of no key') . "*2\r\n:0\r\n:0\r\n";
}

my $impostor = Impostor->new(twice => \&refuse);
my $node = Outbox->create('main', conf => "outbox.command_timeout = '10min'\noutbox.redis_url = '" . $impostor->url('twice') . "'");

$node->sql(q{SELECT outbox_enqueue_many('d', ARRAY['a', 'b'])});
eventually { -e "$folder/asked_again" } 'after such an answer the messages are sent again';
is($node->sql('SELECT count(*) FROM outbox.deferred'), 0, 'nothing is deferred');
is($node->status('pending'), 2, 'both messages are pending');

done_testing();
