# The example in each language whose packages are here, through a transaction pooler if there
# is one: producers that handle the same messages at once, lose their connections and are
# killed; consumers that are killed; events that come again, and poison. The totals are right.
# make examples installs what is missing and runs this.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $examples = Cwd::abs_path(dirname(__FILE__) . '/../examples');
my $built = PostgreSQL::Test::Utils::tempdir();
my $jdbc = '/usr/share/java/postgresql.jar';
my $python = python() // 'python3';
my $started = 0;
my $libpq = qx($ENV{PG_CONFIG} --includedir) =~ s/\n//r;
local $ENV{GOPATH} = '/usr/share/gocode';
local $ENV{GOCACHE} = "$built/go-cache";
local $ENV{GO111MODULE} = 'off';

# How each language is built and run, and what must be there.
my %languages = (
	c => {
		needs => [ 'cc --version', "test -e $libpq/libpq-fe.h", 'test -e /usr/include/hiredis/hiredis.h' ],
		build => [ map { "cc -Wall -Wextra -Werror -I$libpq -I/usr/include/hiredis -o $built/$_ $examples/c/$_.c -lpq -lhiredis" } 'producer', 'consumer' ],
		run => sub { "$built/$_[0]" }
	},
	go => {
		needs => [ 'go version', 'test -d /usr/share/gocode/src/github.com/lib/pq', 'test -d /usr/share/gocode/src/github.com/gomodule/redigo' ],
		build => [ map { "go build -o $built/go-$_ $examples/go/$_/main.go" } 'producer', 'consumer' ],
		run => sub { "$built/go-$_[0]" }
	},
	java => {
		whole_url => 1,
		needs => [ 'javac -version', "test -e $jdbc" ],
		build => ["javac -Xlint:all -cp $jdbc -d $built $examples/java/Producer.java $examples/java/Consumer.java"],
		run => sub { ('java', '-Xshare:auto', '-XX:TieredStopAtLevel=1', '-cp', "$built:$jdbc", ucfirst $_[0]) }
	},
	javascript => {
		whole_url => 1,
		needs => [q{node -e 'require("pg"); require("ioredis")'}],
		run => sub { ('node', "$examples/javascript/$_[0].js") }
	},
	php => {
		whole_url => 1,
		needs => [q{php -r 'exit(extension_loaded("redis") && extension_loaded("pdo_pgsql") ? 0 : 1);'}],
		run => sub { ('php', "$examples/php/$_[0].php") }
	},
	python => {
		needs => ["$python -c 'import psycopg, redis'"],
		run => sub { ($python, "$examples/python/$_[0].py") }
	},
	ruby => {
		needs => [q{ruby -e 'require "pg"; require "redis"'}],
		run => sub { ('ruby', "$examples/ruby/$_[0].rb") }
	});

sub succeeds { return system("$_[0] >/dev/null 2>&1") == 0; }

my @present = grep { !grep { !succeeds($_) } @{ $languages{$_}{needs} } } sort keys %languages;
plan skip_all => 'no language has its packages here' unless @present;
note "languages: @present";

my $redis = Redis->new(tcp => 1);
my $node = Outbox->create('main', redis => $redis, conf => "listen_addresses = '127.0.0.1'\n");
$node->sql(PostgreSQL::Test::Utils::slurp_file("$examples/schema.sql"));
$node->sql(q{CREATE ROLE shop LOGIN; SELECT outbox_grant('shop'); GRANT INSERT ON orders TO shop});
# A key of the application's own: it refuses a copy before the outbox does.
$node->sql('ALTER TABLE orders ADD UNIQUE (customer, amount)');
my $pooler = start_pooler();
my $url = 'postgresql://shop:no-matter@127.0.0.1:' . ($pooler ? $pooler->{port} : $node->port) . '/postgres?sslmode=disable';

# A pgbouncer in transaction mode, if there is one.
sub start_pooler
{
	return undef unless succeeds('pgbouncer --version');
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	PostgreSQL::Test::Utils::append_to_file("$built/users", qq("shop" ""\n));
	PostgreSQL::Test::Utils::append_to_file("$built/pgbouncer.ini", <<"END");
[databases]
postgres = host=${\$node->host} port=${\$node->port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $built/users
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
END
	my $run = IPC::Run::start([ 'pgbouncer', '-q', "$built/pgbouncer.ini" ], '<', \undef, '>&', "$built/pgbouncer.log");
	wait_until { succeeds("psql -X -h 127.0.0.1 -p $port -U shop -c 'SELECT 1' postgres") } or die 'pgbouncer does not start';
	return { run => $run, port => $port };
}

# Starts a program of a language with lines for its standard input.
sub start
{
	my ($language, $program, $arguments, @lines) = @_;
	my %run = (out => '', error => '');
	my $here = Cwd::getcwd();
	my $input = "$built/input" . ++$started;

	PostgreSQL::Test::Utils::append_to_file($input, join '', map { "$_\n" } @lines);
	chdir $examples;
	$run{run} = IPC::Run::start([ $languages{$language}{run}->($program), @$arguments ], '<', $input, '>', \$run{out}, '2>', \$run{error});
	chdir $here;
	return \%run;
}

# Waits for its end, which must be successful; returns what it printed about each id.
sub finish
{
	my ($run) = @_;

	ok($run->{run}->finish, 'it ends well') or diag $run->{error};
	return map { [ split ' ' ] } split /\n/, $run->{out};
}

sub kill_it { my ($run) = @_; $run->{run}->signal('KILL'); eval { $run->{run}->finish }; return; }

# The ids whose answer is this word.
sub ids { my ($word, @answers) = @_; return [ map { $_->[0] } grep { $_->[1] eq $word } @answers ]; }

# How many sessions wait for the lock that a test holds.
sub waiting { return $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop' AND wait_event_type = 'Lock'}); }

sub check_totals
{
	my ($language) = @_;
	my $expected = $node->sql("SELECT string_agg(customer || '=' || sum, ' ' ORDER BY customer)
		FROM (SELECT customer, sum(amount) FROM orders GROUP BY customer) t");
	my %total = @{ $redis->command('HGETALL', 'totals') };

	is(join(' ', map { "$_=$total{$_}" } sort keys %total), $expected, "$language: the totals are right");
	is($redis->command('XPENDING', 'order-events', 'totals')->[0], 0, '... and all is acknowledged');
	return;
}

sub try_producers
{
	my ($language) = @_;
	my @ids = map { "$language-$_" } 1 .. 60;
	my @messages = map { "$language-$_ $language" . $_ % 7 . " $_" } 1 .. 60;
	my $poison = "$language-bad $language-bad";

	# The driver of Go takes TLS for granted.
	foreach my $hopeless ([], $languages{$language}{whole_url} ? ['postgresql:///postgres'] : (), $language eq 'go' ? [ $url =~ s/\?.*//r ] : ())
	{
		my $lost = start($language, 'producer', $hopeless, $messages[0]);
		eventually { $lost->{run}->pumpable && $lost->{run}->pump_nb; !$lost->{run}->pumpable } "$language: a producer that can never connect (@$hopeless) ends";
		$lost->{run}->pumpable ? kill_it($lost) : $lost->{run}->finish;
		like($lost->{error}, qr{producer.* < messages|sslmode=disable}i, '... and says what it needs');
	}
	my $lonely = start($language, 'producer', [ $url =~ s/:\d+(?=\/)/:1/r ], $messages[0]);
	eventually { $lonely->{run}->pump_nb; $lonely->{error} =~ /trying again: ./ } "$language: a producer that reaches no server says so";
	kill_it($lonely);

	# A lock holds up three within the handler of the first message. One is killed; the
	# server ends the sessions of all.
	my $holder = $node->session;
	$holder->query_safe('BEGIN; LOCK TABLE orders IN SHARE MODE');
	my @producers = map { start($language, 'producer', [$url], @messages[ 0 .. 29 ], "$poison many", @messages[ 30 .. 59 ], "$poison -1") } 1 .. 3;
	eventually { waiting() == 3 } "$language: three producers handle the same message at once";
	kill_it(pop @producers);
	$node->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'});
	eventually { waiting() == 2 } '... and those that live begin again when they have lost their connections';
	$holder->query_safe('COMMIT');
	$holder->quit;

	my @answers = map { finish($_) } @producers;
	is_exactly_once(ids('processed', @answers), \@ids, '... each message is processed by one of them');
	is_exactly_once(ids('duplicate', @answers), \@ids, '... and a duplicate for the other');
	is_deeply(ids('refused', @answers), [ ("$language-bad") x 4 ], '... and what no retry will help is refused');
	is_exactly_once(ids('duplicate', finish(start($language, 'producer', [$url], @messages))), \@ids, '... as all are when the killed one is back');
	is_deeply(ids('refused', finish(start($language, 'producer', [$url], "$language-other ${language}1 1"))), ["$language-other"], '... and another one with the same key is refused');
	is($node->sql("SELECT count(*) FROM orders WHERE customer LIKE '$language%'"), 60, '... so there is one order for each');
	ok($node->wait_until_sent, '... and its event is sent');
	return;
}

sub try_consumers
{
	my ($language) = @_;
	my $seen = @{ [ $redis->bodies('order-events:dead') ] };
	my @start = ($language, 'consumer');

	# One reads some and dies, another one is killed.
	eval { $redis->command('XGROUP', 'CREATE', 'order-events', 'totals', '0') };
	$redis->command('XREADGROUP', 'GROUP', 'totals', 'dead', 'COUNT', 5, 'STREAMS', 'order-events', '>');
	my $killed = start(@start, [ $redis->tcp_url, 'killed' ]);
	my $other = start(@start, [ $redis->tcp_url, 'other', 60000, 'until-idle' ]);
	wait_until { $killed->{run}->pump_nb; $other->{run}->pump_nb; "$killed->{out}$other->{out}" ne '' };
	kill_it($killed);
	finish($other);

	# Redis has lost its newest writes, and the outbox sends them again: new entries, the same ids.
	foreach my $entry (($redis->entries('order-events'))[ -20 .. -1 ])
	{
		$redis->command('XADD', 'order-events', '*', map { $_ => $entry->{$_} } 'id', 'time', 'body', 'cause');
	}
	# Entries that are no events.
	my @poison = ('no JSON', '5', '{"customer": "c1"}', '{"customer": "c1", "amount": [1]}', '{"customer": "c1", "amount": "x"}', "\xff\xfe\x00\n");
	$redis->command('XADD', 'order-events', '*', 'id', "poison-$_", 'time', '0', 'body', $poison[$_]) foreach 0 .. $#poison;
	$redis->command('XADD', 'order-events', '*', 'body', 'no id');

	my @answers = finish(start(@start, [ $redis->tcp_url, 'one', 0, 'until-idle' ]));
	cmp_ok(scalar @{ ids('applied', @answers) }, '>=', 5, "$language: what dead consumers had read is applied by another one");
	is(scalar @{ ids('known', @answers) }, 20, '... events that are sent again are known by their ids');
	is_deeply(ids('poison', @answers), [ (map { "poison-$_" } 0 .. $#poison), '-' ], '... what is no event is put aside');
	is_deeply([ ($redis->bodies('order-events:dead'))[ $seen .. $seen + @poison ] ], [ @poison, 'no id' ], '... in a stream of its own, as it is');
	check_totals($language);
	return;
}

foreach my $language (@present)
{
	ok(succeeds($_), "$language: $_") foreach @{ $languages{$language}{build} // [] };
	try_producers($language);
	try_consumers($language);
}
is(($redis->entries('order-events'))[0]{headers}{type}, 'OrderPlaced', 'the events have their header');
kill_it($pooler) if $pooler;

done_testing();
