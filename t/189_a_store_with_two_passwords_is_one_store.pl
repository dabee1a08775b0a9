# While the password of a deduplication store is changed from endpoint to endpoint, URLs that
# differ in it only lead to one store: ids of all endpoints arrive as long as one of them works.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '60s'\n");
my $store = Redis->new(tcp => 1, config => [ '--user', 'u', 'on', '>old', '>new', '~*', '&*', '+@all' ]);
my %url = map { $_ => "redis://u:$_\@127.0.0.1:" . $store->port } 'old', 'new', 'newest';
my $n = 0;

$node->sql("SELECT outbox_create_endpoint('a', dedup_store => '$url{old}'), outbox_create_endpoint('b', dedup_store => '$url{new}')");

sub arrives
{
	my ($endpoint, $name) = @_;
	my $before = $store->count_ids;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$n++;
	$node->sql("BEGIN; SELECT outbox_begin('m$n', '$endpoint'); SELECT outbox_commit(); COMMIT");
	eventually { $store->count_ids == $before + 1 } $name;
	return;
}

sub watermarks { return scalar @{ $store->command('KEYS', 'outbox:watermark:*') }; }

arrives('a', 'an id by the old password');
arrives('b', '... and one by the new one');
is(watermarks(), 1, '... which have one watermark');

# A session has looked into the store before the password that it has got no longer works.
my $session = $node->session;
$session->query_safe(q{BEGIN; SELECT outbox_begin('late', 'a')});
$store->command('ACL', 'SETUSER', 'u', '<old');
$store->command('CLIENT', 'KILL', 'USER', 'u');
my $before = $store->count_ids;
$session->query_safe('SELECT outbox_commit(); COMMIT');
$session->quit;
eventually { $store->count_ids == $before + 1 } 'the old one does not work any more: an id of an endpoint that has it arrives';
arrives('b', '... and those of the other one');
like($node->sql_error(q{SELECT outbox_begin('next', 'a')}), qr/WRONGPASS/, '... while sessions are told of the password that they have got');

$store->command('ACL', 'SETUSER', 'u', '<new', '>newest');
$store->command('CLIENT', 'KILL', 'USER', 'u');
eventually { $node->status('problem') =~ /cannot be used/ } 'neither of them works';
$node->sql("SELECT outbox_alter_endpoint('a', dedup_store => '$url{newest}')");
arrives('a', 'an endpoint gets one that does');
eventually { $node->status('problem IS NULL') eq 't' } '... so nothing is wrong';
is(watermarks(), 1, '... and there still is one watermark');
unlike($node->log_since(0), qr/has lost ids/, '... and it is not said that the store has lost any');

# What no endpoint names any more is not used, though it works: that sessions cannot use theirs is noticed.
$node->sql("SELECT outbox_alter_endpoint('$_', dedup_store => '$url{new}')") foreach 'a', 'b';
eventually { $node->status('problem') =~ /cannot be used.*WRONGPASS/ } 'all endpoints get a wrong one: it is reported';
$node->sql("SELECT outbox_alter_endpoint('$_', dedup_store => '$url{newest}')") foreach 'a', 'b';
eventually { $node->status('problem IS NULL') eq 't' } '... until they get the right one';

# A PostgreSQL store, too, is one. Names of databases are no passwords, however the URL is written.
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'\n");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store'); CREATE DATABASE other});
$server->sql(q{CREATE EXTENSION outbox; SELECT outbox_grant('shard', 'store')}, 'other');
foreach my $database ('postgres', 'other')
{
	my $host = $server->host =~ s{/}{%2F}gr;
	$node->sql("SELECT outbox_create_endpoint('in $database', dedup_store => 'postgresql://shard@?dbname=$database&port=" . $server->port . "&application_name=x\@y&host=$host')");
	$node->sql("BEGIN; SELECT outbox_begin('m', 'in $database'); SELECT outbox_commit(); COMMIT");
	eventually { $server->sql('SELECT count(*) FROM outbox.records', $database) eq '1' } "an id comes into the database $database";
}

# So is a PostgreSQL store one: the dispatcher has one session there.
foreach my $password ('one', 'two')
{
	$node->sql("SELECT outbox_create_endpoint('password $password', dedup_store => '" . ($server->store_url('shard') =~ s/shard/shard:$password/r) . "&application_name=rotated')");
	$node->sql("BEGIN; SELECT outbox_begin('m', 'password $password'); SELECT outbox_commit(); COMMIT");
}
eventually { $server->sql('SELECT count(*) FROM outbox.records') eq '3' } 'ids come into a PostgreSQL store by either password';
is($server->sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rotated'}), 1, '... in one session of the dispatcher');

done_testing();
