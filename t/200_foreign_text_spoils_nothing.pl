# Messages of a Redis or a sentinel may contain any bytes: another encoding, none at all,
# zero bytes, or a character at the place where a text is cut. They are shown and stored as
# text of the database, so tables stay readable and a dump can be restored.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $bad = "b\xff\xfe\xc3(\x00\xa4\xf0\x9f d";
my $long = "WRONGTYPE $bad " . "\xc3\xa9" x 300;

sub refuse
{
	my ($client, $command, @words) = @_;
	return undef unless $command eq 'EVALSHA' and Impostor::messages(@words);
	return "*3\r\n:0\r\n" . Impostor::bulk($long) . "*1\r\n:0\r\n";
}

# An error of the server, and bytes without sense; each for one command.
sub fails { my ($name, $reply) = @_; return sub { my ($client, $command) = @_; return $command eq $name ? $reply : undef; }; }

my $impostor = Impostor->new(
	refuses => \&refuse,
	fails => fails('SCRIPT', "-ERR $bad\r\n"),
	breaks => fails('EVALSHA', "-ERR $bad " . "\xc3\xa9" x 300 . "\r\n"),
	held => sub {
		my ($client, $command, $key) = @_;
		return $command eq 'GET' && $key =~ /lease/ ? Impostor::bulk("someone $bad " . "\xc3\xa9" x 300) : undef;
	},
	evicts => fails('INFO', Impostor::bulk("maxmemory:1\r\nmaxmemory_policy:allkeys-$bad\r\n")),
	sends => fails('XADD', "-ERR $bad\r\n"),
	adds => fails('XADD', Impostor::bulk($bad)));
my $sentinel = Impostor->new(plain => fails('SENTINEL', "-ERR $bad\r\n"));
my $liar = Impostor->new(plain => fails('SENTINEL', "*2\r\n" . Impostor::bulk($bad) . Impostor::bulk('6379')));
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $impostor->url('refuses') . "'\noutbox.max_attempts = 1000000");

# In databases of several encodings.
my %encoding = (utf8 => 'UTF8', latin1 => 'LATIN1', ascii => 'SQL_ASCII', japanese => 'EUC_JP');
my @databases = sort keys %encoding;
foreach my $database (@databases)
{
	$node->sql("CREATE DATABASE $database ENCODING '$encoding{$database}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->sql('CREATE EXTENSION outbox', $database);
}

# Runs a query in all databases, with a client that checks the encoding of the result.
sub reads
{
	my ($regex, $query, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $database (@databases)
	{
		my $answer;
		eventually { ($answer = $node->sql("SET client_encoding = 'UTF8'; $query", $database)) =~ $regex } "$name, $encoding{$database}"
		  or diag $answer;
		ok(utf8::decode($answer), '... which is text');
	}
	return;
}

# Refused messages are kept with the reason. In a UTF-8 database the part that is valid text is kept.
$node->sql(q{SELECT outbox_enqueue('d', 'x')}, $_) foreach @databases;
reads(qr/^WRONGTYPE b.*\?.* d/, q{SELECT last_error FROM outbox.deferred}, 'a refusal is kept');
reads(qr/^WRONGTYPE/, q{SELECT last_error FROM outbox.destinations}, '... and shown');
reads(qr/refuses it.*WRONGTYPE/, q{SELECT problem FROM outbox.status}, '... and is a problem');
like($node->sql('SELECT last_error FROM outbox.deferred', 'utf8'), qr/ d (\xc3\xa9)+$/, '... cut between two characters');
foreach my $database (@databases)
{
	foreach my $into ($database eq 'ascii' ? 'UTF8' : $encoding{$database})
	{
		my $file = $node->basedir . "/$database.sql";
		$node->command_ok([ 'pg_dump', '--no-sync', '--file', $file, $node->connstr($database) ], "dump of $database");
		$node->sql('DROP DATABASE IF EXISTS restored');
		$node->sql("CREATE DATABASE restored ENCODING '$into' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
		$node->sql('ALTER DATABASE restored SET outbox.dispatch = off');
		$node->command_ok([ 'psql', '--quiet', '--no-psqlrc', '--set', 'ON_ERROR_STOP=1', '--file', $file, $node->connstr('restored') ],
			"... is restored into $into");
		is($node->sql('SELECT count(*) FROM outbox.pending', 'restored'), 1, '... with the message');
	}
}

# An error of the server as a whole.
foreach my $case (
	[ 'fails', qr/^ERR b|could not load the script: ERR b/, 'an error of the server' ],
	[ 'breaks', qr/^ERR b/, 'one that is too long' ],
	[ 'held', qr/held by b/, 'who holds the lease' ])
{
	my ($behaviour, $regex, $name) = @$case;
	$node->set('outbox.redis_url' => $impostor->url($behaviour));
	reads($regex, 'SELECT redis_error FROM outbox.status', $name);
	reads(qr/\S/, 'SELECT problem FROM outbox.status', '... is a problem');
}
$node->set('outbox.redis_url' => $impostor->url('evicts'));
reads(qr/maxmemory-policy allkeys-b/, q{SELECT problem FROM outbox.status}, 'a policy that nobody knows');
foreach my $case ([ $sentinel, qr/ERR b/ ], [ $liar, qr/unexpected reply/ ])
{
	$node->set('outbox.redis_url' => 'redis+sentinel://127.0.0.1:' . $case->[0]->port . '/m');
	reads(qr/does not know the master: .*$case->[1].*sentinel at 127.0.0.1:\d+, master "m"/, 'SELECT redis_error FROM outbox.status', 'a sentinel');
}

# outbox_send() reports it to its caller.
foreach my $case ([ 'sends', qr/ERR b/ ], [ 'adds', qr/unexpected reply/ ])
{
	$node->sql("ALTER DATABASE $_ SET outbox.redis_url = '" . $impostor->url($case->[0]) . "'") foreach @databases;
	foreach my $database (@databases)
	{
		my $error = $node->sql_error(q{SET client_encoding = 'UTF8'; SELECT outbox_send('d', 'x')}, $database);
		like($error, qr/^08006: could not send the message to Redis: .*$case->[1].*127.0.0.1:\d+, user "$case->[0]"/, "outbox_send in $database");
		ok(utf8::decode($error), '... which is text');
	}
}

# So does the look into a store.
my $store = Impostor->new(plain => fails('EXISTS', "-ERR $bad\r\n"));
foreach my $database (@databases)
{
	$node->sql(q{SELECT outbox_create_endpoint('s', dedup_store => 'redis://127.0.0.1:} . $store->port . q{')}, $database);
	my $error = $node->sql_error(q{SET client_encoding = 'UTF8'; SELECT outbox_begin('m', 's')}, $database);
	like($error, qr/could not look up the message in the deduplication store: ERR b/, "a store of $database");
	ok(utf8::decode($error), '... which is text');
}

# A real Redis quotes the name of its user, whatever that is.
my $redis = Redis->new(tcp => 1);
$redis->command('ACL', 'SETUSER', "u\xff\xc3(", 'on', '>x', '~*', '+@all', '-script');
$node->sql("ALTER DATABASE $_ SET outbox.redis_url = '" . $redis->tcp_url('u%FF%C3(:x@') . "'") foreach @databases;
reads(qr/permission.*user "u\?\?\("/, 'SELECT problem FROM outbox.status', 'a real Redis');
unlike(slurp_file($node->logfile), qr/\xff/, 'nothing of this is in the log');

done_testing();
