# A handler writes to two databases and commits both by PREPARE TRANSACTION and COMMIT
# PREPARED, as docs/from-nservicebus.md describes. Its coordinator dies at each step, and
# one of the servers with it. The next coordinator ends both in the same way: the message
# is processed in both databases, and what it sends is sent once; or in neither.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $home = Outbox->create('home', redis => $redis);    # has the outbox
my $away = Outbox->create('away', extension => 0, conf => 'outbox.dispatch = off');

$home->sql(<<'END');
CREATE TABLE orders (id text);
CREATE TABLE decided (gid text PRIMARY KEY);
END
$away->sql('CREATE TABLE stock (id text)');

# The steps of the coordinator. Its decision is part of its work in the database that has
# the outbox, which is therefore committed first.
sub steps
{
	my ($id, $gid) = @_;
	return (
		sub { $away->sql("BEGIN; INSERT INTO stock VALUES ('$id'); PREPARE TRANSACTION '$gid'") },
		sub {
			$home->sql(<<"END");
BEGIN;
SELECT outbox_begin('$id');
INSERT INTO orders VALUES ('$id');
SELECT outbox_enqueue('done', '$id');
SELECT outbox_commit();
INSERT INTO decided VALUES ('$gid');
PREPARE TRANSACTION '$gid';
END
		},
		sub { $home->sql("COMMIT PREPARED '$gid'") },
		sub { $away->sql("COMMIT PREPARED '$gid'") });
}

sub prepared
{
	my ($node) = @_;
	return split /\n/, $node->sql(q{SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'shop/%' ORDER BY gid});
}

# What the coordinator does when it starts, with all prepared transactions of its own.
sub recover
{
	$home->sql("ROLLBACK PREPARED '$_'") foreach prepared($home);
	foreach my $gid (prepared($away))
	{
		my $decision = $home->sql("SELECT count(*) FROM decided WHERE gid = '$gid'") ? 'COMMIT' : 'ROLLBACK';
		$away->sql("$decision PREPARED '$gid'");
	}
	return;
}

my $attempt = 0;

foreach my $survives (1, 0)
{
	foreach my $done (0 .. 4)
	{
		my $id = "m$done-$survives";
		my @steps = steps($id, 'shop/' . ++$attempt);
		my $name = "the coordinator dies after step $done" . ($survives ? '' : ', and a server with it');

		$_->() foreach @steps[ 0 .. $done - 1 ];
		if (!$survives)
		{
			my $server = $done % 2 ? $home : $away;
			$server->stop('immediate');
			$server->start;
		}
		recover();

		my $committed = $done >= 3 ? 1 : 0;
		is($home->sql("SELECT count(*) FROM orders WHERE id = '$id'"), $committed, $name);
		is($away->sql("SELECT count(*) FROM stock WHERE id = '$id'"), $committed, '... and both databases agree');
		is($home->sql("BEGIN; SELECT outbox_begin('$id'); ROLLBACK"), $committed ? 'f' : 't', '... on whether it was processed, too');

		# It is delivered again, as it was not acknowledged.
		next if $committed;
		$_->() foreach steps($id, 'shop/' . ++$attempt);
		is($away->sql("SELECT count(*) FROM stock WHERE id = '$id'"), 1, '... then it is processed when it comes again');
	}
}

my @ids = map { ("m$_-0", "m$_-1") } 0 .. 4;
$home->wait_until_sent;
is_exactly_once([ $redis->bodies('done') ], \@ids, 'each message was sent');
is_exactly_once([ split /\n/, $home->sql('SELECT id FROM orders') ], \@ids, '... and each was processed in one database');
is_exactly_once([ split /\n/, $away->sql('SELECT id FROM stock') ], \@ids, '... and in the other');

done_testing();
