# A store that cannot be reached, hangs, or is a replica is an error for the caller, and
# never means "not found". The wait can be cancelled, and the error shows no password.

use strict;
use warnings FATAL => 'all';

use Impostor;
use IO::Socket::INET;
use Outbox;
use Proxy;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '60s'\noutbox.connect_timeout = '10s'");
my $redis_store = Redis->new(tcp => 1);
my $server = Outbox->create('store', init => { allows_streaming => 1 },
	conf => "outbox.redis_url = 'redis://127.0.0.1:1'\nlisten_addresses = '127.0.0.1'");
$server->sql(q{CREATE ROLE shard LOGIN PASSWORD 'sw0rdfish'; SELECT outbox_grant('shard', 'store')});
PostgreSQL::Test::Utils::append_to_file($server->data_dir . '/pg_hba.new', "host all all 127.0.0.1/32 scram-sha-256\nlocal all all trust\nlocal replication all trust\n");
rename $server->data_dir . '/pg_hba.new', $server->data_dir . '/pg_hba.conf' or die "rename: $!";
$server->reload;
$redis_store->command('CONFIG', 'SET', 'requirepass', 'sw0rdfish');
$redis_store->log_in_with('sw0rdfish');

$node->sql(q{INSERT INTO outbox.endpoint (name) VALUES ('sales')});
my $port = $server->port;

# Gives the endpoint this store.
sub use_store
{
	my ($url) = @_;
	$node->sql("UPDATE outbox.endpoint SET dedup_store = '$url'");
	return;
}

# Looks up an id, with more arguments, or a setting for this transaction.
sub begin_in
{
	my ($arguments, $setting) = @_;
	return 'BEGIN; ' . ($setting ? "SET LOCAL $setting; " : '') . "SELECT outbox_begin('never seen', 'sales'" . ($arguments // '') . '); ROLLBACK';
}

# Check that outbox_begin() fails in both modes with this SQLSTATE and text.
sub fails
{
	my ($url, $error, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	use_store($url);
	like($node->sql_error(begin_in()), $error, $name);
	like($node->sql_error(begin_in(", 'pessimistic'")), $error, '... in both modes');
	return;
}

sub works
{
	my ($url, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	use_store($url);
	is($node->sql(begin_in()), 't', $name);
	return;
}

my $good_redis = $redis_store->tcp_url(':sw0rdfish@');
my $good_postgres = "postgresql://shard:sw0rdfish\@127.0.0.1:$port/postgres";

works($good_redis, 'a Redis with a password');
works("redis://:sw0rdfish\@localhost:" . $redis_store->port . '/2', '... by name, and another database of it');
works($good_postgres, 'a PostgreSQL with a password');
works("postgres://shard\@localhost:$port,127.0.0.1:$port/postgres?password=sw0rdfish", '... by name, one of several');
works($server->store_url('shard'), '... by a unix socket');

# One of several hosts is down, or accepts the connection and does not answer.
my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die "listen: $!";
works("postgresql://shard:sw0rdfish\@nowhere.invalid,127.0.0.1:$port/postgres", '... the second of two, the first has no address');
works("postgresql://shard:sw0rdfish\@127.0.0.1:1,127.0.0.1:$port/postgres", '... or refuses');
works("postgresql://shard:sw0rdfish\@127.0.0.1:" . $silent->sockport . ",127.0.0.1:$port/postgres?target_session_attrs=read-write", '... or keeps silent');

fails('redis://127.0.0.1:1', qr/^08006: could not look up the message in the deduplication store: could not connect/, 'a Redis that is not there');
fails('unix:///nowhere', qr/^08006: .*could not connect/, '... or its socket');
fails('redis://nowhere.invalid', qr/^08006: .*could not look up the host/, '... or its name');
fails($redis_store->tcp_url(':w0rdfish@'), qr/^08006: .*could not log in/, 'a wrong password');
fails('postgresql://127.0.0.1:1/postgres', qr/^08006: .*Connection refused/, 'a PostgreSQL that is not there');
fails('postgresql://nowhere.invalid/postgres', qr/^08006: .*could not look up the host/, '... or its name');
fails("postgresql://shard:w0rdfish\@127.0.0.1:$port/postgres", qr/^08006: .*password authentication failed/, 'a wrong password');
fails($server->store_url('shard') =~ s/postgres\?/template1?/r, qr/^55000: .*does not have this extension/, 'a database without the extension');
$server->sql('CREATE ROLE stranger LOGIN');
fails($server->store_url('stranger'), qr/^(42501|55000): /, 'a role without the privilege');
$redis_store->command('ACL', 'SETUSER', 'limited', 'on', '>x', '~*', '+@all', '-role');
fails($redis_store->tcp_url('limited:x@'), qr/^08006: .*NOPERM/, 'a Redis that does not say whether it is a replica');
fails($redis_store->tcp_url('limited@'), qr/^08006: .*could not log in: WRONGPASS/, 'a user without the password that he has');
my $starting = Impostor->new(starts => sub { return $_[1] eq 'AUTH' ? undef : "-LOADING Redis is loading the dataset in memory\r\n"; });
fails($starting->url('starts'), qr/^57P03: .*LOADING/, 'a Redis that is starting');
my $silent_one = Impostor->new(plain => sub { return $_[1] eq 'EXISTS' ? "-\r\n" : undef });
fails('redis://127.0.0.1:' . $silent_one->port, qr/^08006: .*store: it gave no reason$/, 'one whose error is empty');
foreach my $count ('-1', '2')
{
	my $liar = Impostor->new(plain => sub { return $_[1] eq 'EXISTS' ? ":$count\r\n" : undef });
	fails('redis://127.0.0.1:' . $liar->port, qr/^08006: .*unexpected reply/, "one that has a single id $count times");
}

#
# A replica may lack what was added last.
#
my $replica = Redis->new;
$replica->command('CONFIG', 'SET', 'masterauth', 'sw0rdfish');
works($replica->url, 'a master');
my $session = $node->session;
like($session->query(begin_in()), qr/^t$/m, '... also in another session');
$replica->command('REPLICAOF', '127.0.0.1', $redis_store->port);
like($node->sql_error(begin_in()), qr/^55000: .*replica/, 'that has become a replica');
unlike($session->query(begin_in()), qr/^t$/m, '... which a session notices whose connection is open');
$replica->command('REPLICAOF', 'NO', 'ONE');
like($session->query(begin_in()), qr/^t$/m, '... and that it is a master again');

$server->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($server, 'backup', has_streaming => 1);
$standby->start;
fails("postgresql://shard\@/postgres?host=" . $standby->host . '&port=' . $standby->port, qr/^55000: .*standby/, 'a standby');
$standby->append_conf('postgresql.conf', 'hot_standby = off');
$standby->restart;
fails("postgresql://shard\@/postgres?host=" . $standby->host . '&port=' . $standby->port,
	qr/^57P03: .*FATAL:  the database system is not accepting connections/, 'a server that accepts no connections');
$server->sql('CREATE DATABASE closed ALLOW_CONNECTIONS false');
fails($server->store_url('shard') =~ s/postgres\?/closed?/r, qr/^57P03: .*FATAL:  database "closed" is not currently accepting/, 'a database that does not');
$server->sql('ALTER DATABASE postgres SET default_transaction_read_only = on');
fails($server->store_url('shard'), qr/^55000: .*read-only/, 'a database that is read-only');
$server->sql('BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT');

$server->sql(q{ALTER FUNCTION outbox.store_contains RENAME TO contains; CREATE FUNCTION outbox.store_contains(uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION ''; END $$});
$server->sql(q{GRANT EXECUTE ON FUNCTION outbox.store_contains TO shard});
fails($server->store_url('shard'), qr/^08006: .*store: it gave no reason$/, 'an error that is empty');
$server->sql(q{DROP FUNCTION outbox.store_contains; ALTER FUNCTION outbox.contains RENAME TO store_contains});

#
# A store that hangs: the wait is limited, and can be cancelled earlier. Only who gives up has so little time.
#
my $limit = q{outbox.command_timeout = '1s'};
my $brief = q{statement_timeout = '200ms'};
$redis_store->pause;
use_store($good_redis);
my $took = seconds { like($node->sql_error(begin_in('', $limit)), qr/^08006: .*within 1000 ms/, 'a Redis that hangs'); };
cmp_ok($took, '<', 150, '... is not waited for long');
like($node->sql_error(begin_in('', $brief)), qr/^57014/, '... and can be cancelled before the time is up');
$redis_store->resume;
works($good_redis, '... it goes on');

# A session that asks three times opens no connection for that. The dispatcher may open
# one meanwhile; then this is tried again.
sub keeps_its_connection
{
	my ($asking, $through) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return eventually
	{
		my $opened = $through->opened;
		3 == grep { $asking->query(begin_in()) =~ /^t$/m && $through->opened == $opened } 1 .. 3;
	}
	'... which it keeps for all that follow';
}

# The session that gave up reads the answer to its next question, and not a late one.
my $proxy = Proxy->new($redis_store);
use_store($proxy->url =~ s{//}{//:sw0rdfish\@}r);
like($session->query(begin_in()), qr/^t$/m, 'through a slow network');
$proxy->hold('EXISTS');
unlike($session->query(begin_in('', $brief)), qr/^[tf]$/m, '... a session gives up');
$proxy->pass;
like($session->query(begin_in()), qr/^t$/m, '... and asks again on a new connection');
keeps_its_connection($session, $proxy);
$redis_store->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
like($session->query(begin_in()), qr/^t$/m, 'a connection that was lost meanwhile is none to the caller');

my $pg_proxy = Proxy->new($server);
$server->sql(q{SELECT 1});
use_store($server->store_url('shard', $pg_proxy));
like($session->query(begin_in()), qr/^t$/m, 'the same for a PostgreSQL');
$pg_proxy->hold('store_contains');
$session->{stderr} = '';
unlike($session->query(begin_in('', $brief)), qr/^[tf]$/m, '... a session gives up');
like($session->{stderr}, qr/statement timeout/, '... before the time is up');
$took = seconds { like($node->sql_error(begin_in('', $limit)), qr/^08006: .*within 1000 ms/, '... or its time is up') };
cmp_ok($took, '<', 150, '... soon');
$pg_proxy->pass;
like($session->query(begin_in()), qr/^t$/m, '... and asks again on a new connection');
keeps_its_connection($session, $pg_proxy);
$server->sql(q{SELECT pg_terminate_backend(pid, 180000) FROM pg_stat_activity WHERE usename = 'shard'});
like($session->query(begin_in()), qr/^t$/m, 'a connection that was ended meanwhile is none to the caller');

# Savepoints and PL/pgSQL may catch the error.
$redis_store->pause;
use_store($good_redis);
$node->sql("SET $limit;" . <<'SQL');
DO $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			PERFORM outbox_begin('never seen', 'sales');
		EXCEPTION WHEN connection_failure THEN
			NULL;
		END;
	END LOOP;
	PERFORM outbox_begin('another', 'default');
	PERFORM outbox_commit();
END
$$;
SQL
pass('an error may be caught');
$redis_store->resume;
$session->quit;

#
# Which values are refused, and who may see what.
#
foreach my $case (
	[ 'http://:sw0rdfish@127.0.0.1', qr/scheme/ ],
	[ 'redis://:sw0rdfish@127.0.0.1:x', qr/port/ ],
	[ 'postgresql://a:sw0rdfish@%zz/b', qr/not a valid URL/ ],
	[ 'postgresql://a:sw0rdfish%zz@b', qr/not a valid URL/ ],
	[ 'postgresql://a:sw0rdfish@b?nonsense=1', qr/not a valid URL/ ],
	[ 'postgresql://a:1/sw0rdfish@b/c', qr/must be written as/ ])
{
	my ($url, $reason) = @$case;
	my ($status, undef, $error) = $node->psql('postgres', "SELECT outbox.check_store('$url')");
	isnt($status, 0, "refused: $url");
	like($error, $reason, '... with the reason');
	unlike($error =~ s/^.*LINE 1.*$//mr, qr/sw0rdfish/, '... without the password');
}
is($node->sql("SELECT outbox.check_store('$_')"), '', "accepted: $_")
  foreach $good_redis, $good_postgres, 'redis+sentinel://h1,h2/m', 'unix:///a', 'postgresql://%2Fvar%2Frun/db';
$node->sql(q{CREATE ROLE admin LOGIN; SELECT outbox_grant('admin', 'admin'); GRANT EXECUTE ON FUNCTION outbox.check_store TO admin});
like($node->sql_error("SELECT outbox.check_store('redis://a')", 'postgres', extra_params => [ '-U', 'admin' ]), qr/^42501/, 'only a superuser names one');
$node->sql(q{CREATE FUNCTION trap() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ SELECT outbox.check_store('redis://a') $$; GRANT USAGE ON SCHEMA outbox TO admin});
like($node->sql_error('SELECT trap()', 'postgres', extra_params => [ '-U', 'admin' ]), qr/^42501/, '... also by a function of one');

foreach my $case (
	[ 'redis://:sw0rdfish@h:1/2', 'redis://:***@h:1/2' ],
	[ 'redis://user:sw0rdfish@h', 'redis://user:***@h' ],
	[ 'redis://user@h', 'redis://user@h' ],
	[ 'redis://h', 'redis://h' ],
	[ 'redis://u:sw0rd@fish@h', 'redis://u:***@h' ],
	[ 'redis+sentinel://:sw0rdfish@h1:1,h2/m', 'redis+sentinel://:***@h1:1,h2/m' ],
	[ 'unix:///a/b', 'unix:///a/b' ],
	[ 'postgresql://u:sw0rdfish@h1,h2:5/db?sslmode=require', 'postgresql://u:***@h1,h2:5/db?sslmode=require' ],
	[ 'postgresql://h/db?user=u&password=sw0rdfish&sslpassword=sw0rdfish&port=1', 'postgresql://h/db?user=u&password=***&sslpassword=***&port=1' ],
	[ 'postgresql://h/db?scram_client_key=sw0rdfish&oauth_client_secret=sw0rdfish&sslkey=f', 'postgresql://h/db?scram_client_key=***&oauth_client_secret=***&sslkey=f' ],
	[ 'postgresql://?p%61ssword=sw0rdfish', 'postgresql://?p%61ssword=***' ],
	[ 'postgresql://u:sw0rd?fish@h/db?port=1', 'postgresql://u:***@h/db?port=1' ],
	[ 'postgresql://u?sw0rdfish@h', 'postgresql://u?***@h' ],
	[ 'postgresql://u@h?password=sw0rdfish&port=1', 'postgresql://u@h?password=***&port=1' ],
	[ 'postgresql://u@h&password=sw0rdfish', 'postgresql://u@h&password=***' ],
	[ 'redis://:sw0rd?fish@h', 'redis://:***@h' ],
	[ 'redis://:sw0rd#?a&b=fish@h/1', 'redis://:***@h/1' ])
{
	is($node->sql("SELECT outbox.mask_store('$case->[0]')"), $case->[1], "shown as $case->[1]");
}

# Only logged statements may show the password.
my $log = join "\n", grep { !/STATEMENT: / } split /\n/, $node->log_since(0);
unlike($log, qr/w0rdfish/, 'the log shows no password');
like($log, qr{store[^"]*"redis://:[*]{3}@}, q{... but which store it is about});
unlike($node->sql_error(begin_in()) . $node->status('problem'), qr/w0rdfish/, 'nor does an error or a view');

done_testing();
