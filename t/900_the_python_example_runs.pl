# The example in Python: orders come twice and at the same time; consumers that die, and
# that get some events again, add them up. The totals are right.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $example = dirname(__FILE__) . '/../examples/python';
my $python = python();
plan skip_all => 'no python3 with psycopg and redis' unless $python;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
$node->sql(PostgreSQL::Test::Utils::slurp_file("$example/schema.sql"));

# Starts a script of the example with a file for its standard input.
sub start
{
	my ($script, $arguments, $input) = @_;
	my %run = (out => '', error => '');

	$run{run} = IPC::Run::start([ $python, "$example/$script", @$arguments ],
		'<', $input // '/dev/null', '>', \$run{out}, '2>', \$run{error});
	return \%run;
}

# Waits for its end, which must be successful; returns what it printed about each id.
sub finish
{
	my ($run) = @_;

	ok($run->{run}->finish, 'it ends well') or diag $run->{error};
	return map { [ split ' ' ] } split /\n/, $run->{out};
}

sub produce { return start('producer.py', [ $node->connstr('postgres') ], shift); }

sub consume
{
	my ($name, @options) = @_;
	return start('consumer.py', [ $redis->url, $name, '--until-idle', @options ]);
}

# Writes messages for the producer.
sub messages
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/messages';

	PostgreSQL::Test::Utils::append_to_file($file,
		join '', map { my $customer = 'c' . $_ % 7; qq({"id": "m$_", "customer": "$customer", "amount": $_}\n) } @_);
	return $file;
}

# The ids whose answer is this word.
sub ids { my ($word, @answers) = @_; return [ map { $_->[0] } grep { $_->[1] eq $word } @answers ]; }

sub check_totals
{
	my ($name) = @_;
	my $expected = $node->sql("SELECT string_agg(customer || '=' || sum, ' ' ORDER BY customer)
		FROM (SELECT customer, sum(amount) FROM orders GROUP BY customer) t");
	my %total = @{ $redis->command('HGETALL', 'totals') };

	is(join(' ', map { "$_=$total{$_}" } sort keys %total), $expected, "the totals are right $name");
	is($redis->command('XPENDING', 'order-events', 'totals')->[0], 0, '... and all is acknowledged');
	return;
}

# Two producers get the same messages. A lock holds up both within the handler of the
# first message.
my $holder = $node->session;
$holder->query_safe('BEGIN; LOCK TABLE orders IN SHARE MODE');
my @producers = map { produce(messages(1 .. 200)) } 1 .. 2;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_activity
	WHERE query LIKE 'INSERT INTO orders%' AND wait_event_type = 'Lock'}), 'two producers handle the same message at once');
$holder->query_safe('COMMIT');
$holder->quit;
my @answers = map { finish($_) } @producers;
my $all = [ map { "m$_" } 1 .. 200 ];
is_exactly_once(ids('processed', @answers), $all, 'each message is processed by one of two producers');
is_exactly_once(ids('duplicate', @answers), $all, '... and a duplicate for the other');
is($node->sql('SELECT count(*) FROM orders'), 200, '... so there is one order for each');
eventually { $redis->count('order-events') == 200 } '... and one event';
is(($redis->entries('order-events'))[0]{headers}{type}, 'OrderPlaced', '... with its header');

# Two consumers share the events.
my @consumers = map { consume($_) } 'one', 'two';
@answers = map { finish($_) } @consumers;
my @sent = map { $_->{id} } $redis->entries('order-events');
is_exactly_once(ids('applied', @answers), \@sent, 'each event is applied by one of two consumers');
check_totals('after that');

# A third one reads some and dies.
finish(produce(messages(201 .. 210)));
$node->wait_until_sent;
$redis->command('XREADGROUP', 'GROUP', 'totals', 'dead', 'COUNT', 5, 'STREAMS', 'order-events', '>');
@answers = finish(consume('one', '--claim-after', 0));
is(scalar @{ ids('applied', @answers) }, 10, 'what a dead consumer had read is applied by another one');
check_totals('after that too');

# Redis has lost its newest writes, and the outbox sends them again: new entries, the same ids.
foreach my $entry (($redis->entries('order-events'))[ -20 .. -1 ])
{
	$redis->command('XADD', 'order-events', '*', map { $_ => $entry->{$_} } 'id', 'time', 'body', 'cause');
}
@answers = finish(consume('two'));
is(scalar @{ ids('known', @answers) }, 20, 'events that are sent again are known by their id');
check_totals('still');

# An entry that is not an event does not end the consumer.
my @poison = ('no JSON', '5', '{"customer": "c1"}', '{"customer": "c1", "amount": [1]}', '{"customer": "c1", "amount": "x"}', "\xff\xfe");
$redis->command('XADD', 'order-events', '*', 'id', "poison-$_", 'time', '0', 'body', $poison[$_]) foreach 0 .. $#poison;
$redis->command('XADD', 'order-events', '*', 'body', 'no id');
is_deeply(ids('poison', finish(consume('four'))), [ (map { "poison-$_" } 0 .. $#poison), 'None' ], 'what is no event is put aside');
is_deeply([ $redis->bodies('order-events:dead') ], [ @poison, 'no id' ], '... in a stream of its own, as it is');
check_totals('then');

done_testing();
