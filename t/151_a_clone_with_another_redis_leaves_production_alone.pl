# A copy of the data directory whose outbox.redis_url is changed before its first start
# publishes what is pending in it to its own Redis, with or without what the log retains;
# production is not affected.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $production = Outbox->create('production', redis => $redis,
	init => { allows_streaming => 1 }, conf => "outbox.takeover_delay = '1s'");

sub handle
{
	my ($node, @numbers) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('m$_'); SELECT outbox_enqueue('d', '$_', message_id => 'id $_'); SELECT outbox_commit(); COMMIT")
	  foreach @numbers;
	return;
}

sub ids { my ($server, $stream) = @_; return join ' ', map { $_->{id} } $server->entries($stream // 'd'); }
sub named { return join ' ', map { "id $_" } @_; }
sub fence { return $redis->command('GET', $redis->key('fence')); }

# Starts a clone that has its own Redis and outbox.redis_data_loss set.
sub clone
{
	my ($name, $server, $loss) = @_;
	my $clone = Outbox->new($name);

	$clone->init_from_backup($production, 'base');
	$clone->append_conf('postgresql.conf', "outbox.redis_url = '" . $server->url . "'\noutbox.redis_data_loss = $loss");
	$clone->start;
	return $clone;
}

handle($production, 1 .. 3);
$production->sql(q{SELECT outbox_enqueue('later', 'x', message_id => 'id later', deliver_at => now() + interval '1 day')});
eventually { $redis->count('d') == 3 } 'production sends';
ok($production->poll_query_until('postgres', 'SELECT published = number FROM outbox.window_0 ORDER BY number DESC LIMIT 1'),
	'... and has noted that');
$redis->stop;
handle($production, 4 .. 6);
$production->backup('base');

my %server = (replay => Redis->new, resume => Redis->new);
my %first = (replay => 1, resume => 4);
my %clone = map { $_ => clone("with_$_", $server{$_}, $_) } sort keys %server;
my $log = $production->log_position;
my $dispatcher = $production->dispatcher;
$redis->start;
ok($production->wait_until_sent, 'production sends what waited');
is(ids($redis), named(1 .. 6), '... once, in order');
my $fence;
eventually
{
	my $last = $production->sql('SELECT CASE WHEN published = number THEN number END || $$ $$ || uuid FROM outbox.window_0 ORDER BY number DESC LIMIT 1');
	$fence = fence();
	$last ne '' && index($fence, "$last ") == 0;
} 'its fence stands still';

foreach my $loss (sort keys %clone)
{
	my $node = $clone{$loss};
	my $mine = $server{$loss};
	my $was = $first{$loss};

	ok($node->wait_until_sent, "the clone with $loss sends to its own Redis");
	is(ids($mine), named($was .. 6), $loss eq 'replay' ? '... all that its log has' : '... only what was pending');
	like($node->log_since(0), qr/Redis has no fence of this database/, '... and its log says why');
	is($node->sql("SELECT outbox_begin('m$_')"), 'f', "message $_ is a duplicate there") foreach 1, 6;
	is($node->status('scheduled'), 1, 'what is scheduled waits there, too');
	handle($node, 7);
	$node->restart;
	handle($node, 8);
	eventually { $mine->count('d') == 9 - $was } 'it goes on, also after a restart';
	is(ids($mine), named($was .. 8), '... and repeats nothing');
	eventually { $node->status('problem IS NULL') eq 't' } '... nothing is wrong';
}

is(fence(), $fence, 'nothing of this has touched the fence of production');
handle($production, 'of production');
eventually { $redis->count('d') == 7 } 'production goes on';
is(ids($redis), named(1 .. 6, 'of production'), '... with its own messages only');
is($production->dispatcher, $dispatcher, '... and the same dispatcher');
eventually { $production->status('problem IS NULL') eq 't' } '... nothing is wrong';
unlike($production->log_since($log), qr/never opened|has no fence|lease|ERROR/, '... nor was');

# When the clones are gone, production does not take over anything from them.
$_->stop('immediate') foreach values %clone;
handle($production, 'last');
eventually { $redis->count('d') == 8 } 'when the clones are gone production goes on';
is($server{$_}->count('d'), 9 - $first{$_}, "... and sends nothing to the Redis of the clone with $_") foreach sort keys %server;

done_testing();
