# A Redis that asks for a greater epoch of a layout each time, which no outbox would, is not
# told of it again and again: the destination refuses messages, those of others are sent.
# One that cannot be told because it is in trouble counts no attempt of a message.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir();
my %answer = (epoch => ":5\r\n", negative => ":-5\r\n", memory => "-OOM command not allowed when used memory > 'maxmemory'.\r\n");

sub serve
{
	my ($answer, $client, $command, @words) = @_;

	PostgreSQL::Test::Utils::append_to_file("$folder/sent", Impostor::messages(@words)) if $command eq 'EVALSHA' and Impostor::messages(@words);
	return $command eq 'EVAL' && "@words" =~ /outbox:partitions:/ ? $answer : undef;
}

my $impostor = Impostor->new(map { my $answer = $answer{$_}; $_ => sub { return serve($answer, @_) } } keys %answer);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $impostor->url('memory') . "'");

sub refusal { return $node->sql(q{SELECT last_error FROM outbox.destinations WHERE dest = 'spread'}); }

$node->sql(q{SELECT outbox_set_destination('spread', partitions => 2)});
$node->sql(q{SELECT outbox_enqueue(d, 'body') FROM unnest('{spread,other}'::text[]) d});
eventually { $node->status('problem') =~ /^Redis cannot be used, so messages wait: could not write a number of partitions: OOM/ } 'a Redis that has no memory for a layout cannot be used'
  or diag refusal();
is($node->sql('SELECT count(*) FROM outbox.deferred'), 0, '... and no message is to blame');

$node->set('outbox.redis_url' => $impostor->url('epoch'));
eventually { -e "$folder/sent" } 'messages for other destinations are sent';
eventually { refusal() =~ /could not write its number of partitions: Redis asks for a greater epoch each time/ } 'the destination refuses messages, which says why'
  or diag refusal();

$node->set('outbox.redis_url' => $impostor->url('negative'));
eventually { refusal() =~ /could not write its number of partitions: unexpected reply/ } 'no other number is taken for the answer that it was told' or diag refusal();
is($node->status('pending'), 1, 'its message waits');
done_testing();
