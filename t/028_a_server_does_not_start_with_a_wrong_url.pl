# A server whose outbox.redis_url or outbox.dispatch is wrong does not start: with the
# default in its place, messages would go to the wrong Redis.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
$node->sql(q{SELECT outbox_enqueue('d', 'before')});
ok($node->wait_until_sent, 'a server with good settings sends');
my $good = PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postgresql.conf');
$node->stop;

foreach my $case (
	[ 'outbox.redis_url', 'http://user:hunter2@localhost' ],
	[ 'outbox.redis_url', '' ],
	[ 'outbox.dispatch', 'offf' ])
{
	my ($name, $value) = @$case;
	my $position = $node->log_position;
	$node->append_conf('postgresql.conf', "$name = '$value'");
	is($node->start(fail_ok => 1), 0, "$name = '$value': it does not start");
	my $log = $node->log_since($position);
	like($log, qr/FATAL:  invalid value for parameter "\Q$name\E"/, '... and the log names the setting');
	unlike($log, qr/hunter2/, '... but no password');
	write_conf($good);
}

$node->append_conf('postgresql.conf', "outbox.dispatch = 'no'");
$node->start;
eventually { $node->status('dispatcher_state') eq 'off' } 'other ways to write a good value are taken';
$node->stop;
write_conf($good);
$node->start;
$node->sql(q{SELECT outbox_enqueue('d', 'after')});
eventually { $redis->sequence('d') eq 'before after' } 'when it is corrected the server sends as before';

done_testing();

sub write_conf
{
	my ($text) = @_;
	open my $file, '>', $node->data_dir . '/postgresql.conf' or die $!;
	print $file $text;
	close $file or die $!;
	return;
}
