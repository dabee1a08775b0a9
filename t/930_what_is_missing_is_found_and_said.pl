# What the first commands need is looked for as files, not by the names of packages, and
# whatever goes wrong, the last line says what to do. Here paths are faked; make
# first-commands tests it where something is really missing.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Path;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = getcwd();
my $folder = PostgreSQL::Test::Utils::tempdir();
my $bin = "$folder/bin";
my $postgres = "$folder/postgresql";
my @tools = qw(cat chmod cut cp dirname df env find gcc grep head id make mkdir mktemp openssl perl python3 readlink
  redis-check-rdb redis-cli redis-server rm rmdir sed setpriv sh sort sudo tail touch tr uname);

# A path with these tools, except for some; tools that are given as text become scripts.
sub path_with
{
	my (%tool) = @_;

	rmtree($bin);
	mkdir $bin;
	foreach my $name (@tools)
	{
		my ($program) = grep { -x && !/ccache/ } map { "$_/$name" } split /:/, $ENV{PATH};    # ccache looks for itself
		symlink $program, "$bin/$name" if $program && !exists $tool{$name};
	}
	script("$bin/$_", $tool{$_}) foreach grep { defined $tool{$_} } keys %tool;
	return $bin;
}

sub script
{
	my ($file, $text) = @_;

	unlink $file;
	PostgreSQL::Test::Utils::append_to_file($file, "#!/bin/sh\n$text\n");
	chmod 0755, $file;
	return;
}

# A PostgreSQL with these files, and its pg_config.
sub postgres_with
{
	my ($version, @files) = @_;

	rmtree($postgres);
	mkpath($postgres);
	foreach my $file (@files)
	{
		my $path = "$postgres/$file";
		mkpath($path =~ s{/[^/]*$}{}r);
		PostgreSQL::Test::Utils::append_to_file($path, '');
	}
	script("$postgres/pg_config", <<END);
case \$1 in
	--version) echo "PostgreSQL $version" ;;
	--pgxs) echo $postgres/pgxs/src/makefiles/pgxs.mk ;;
	--cc) echo gcc ;;
	*) echo $postgres/\${1#--} ;;
esac
END
	return "$postgres/pg_config";
}

my @client = ('pgxs/src/makefiles/pgxs.mk', 'includedir/libpq-fe.h');
my @headers = ('includedir-server/postgres.h', 'pgxs/src/test/perl/PostgreSQL/Test/Cluster.pm');
my @server = ('bindir/postgres');

# Runs a command with such a path and such a PostgreSQL; returns its status and its last
# line that does not come from make.
sub run_with
{
	my ($pg_config, $tools, @command) = @_;
	local $ENV{PATH} = path_with(%$tools);
	local $ENV{PG_CONFIG} = $pg_config;
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my $output = '';

	IPC::Run::run(\@command, '<', \undef, '>&', \$output);
	my $status = $? >> 8;
	my @lines = grep { !/^make(.*\*\*\* \[|: (Entering|Leaving) )/ } split /\n/, $output;
	return ($status, $lines[-1] // '', $output);
}

# Checks that a command fails with such a last line.
sub says
{
	my ($name, $pattern, $pg_config, $tools, @command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $last, $output) = run_with($pg_config, $tools, @command);

	ok($status != 0 && $last =~ $pattern, $name) or diag "status $status: $output";
	return;
}

# Checks that exactly these are named to a user who may install nothing.
my %nobody = ('apt-get' => 'exit 9', sudo => undef, id => 'echo 1000');

sub misses
{
	my ($name, $packages, $pg_config, %tools) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return says($name, qr/^That takes root or sudo\. .* then try again: apt-get install \Q$packages\E$/,
		$pg_config, { %nobody, %tools }, 'dev/packages');
}

#
# What is missing.
#
my ($status, undef, $output) = run_with(postgres_with('15.9', @client, @headers, @server), {%nobody}, 'dev/packages');
is("$status$output", '0', 'nothing is missing where all is there');
{
	local $ENV{CDPATH} = '/';    # where there is a dev, too
	($status, undef, $output) = run_with(postgres_with('15.9', @client, @headers, @server), {%nobody}, 'dev/packages');
	is("$status$output", '0', '... wherever else cd would look');
}
misses('PGXS and libpq say nothing about the headers of the server', 'postgresql-server-dev-15', postgres_with('15.9', @client, @server));
misses('headers are no server', 'postgresql-15', postgres_with('15.9 (Debian 15.9-1)', @client, @headers));
misses('a server alone', 'libpq-dev postgresql-server-dev-15', postgres_with('15.9', @server));
misses('another version that is asked for', 'postgresql-server-dev-16', postgres_with('16.1', @client, @server));
misses('no compiler', 'build-essential', postgres_with('15.9', @client, @headers, @server), gcc => undef);
misses('a compiler without headers of C', 'build-essential', postgres_with('15.9', @client, @headers, @server), gcc => 'exit 1');
misses('no Redis', 'redis-tools', postgres_with('15.9', @client, @headers, @server),
	'redis-server' => undef, 'redis-check-rdb' => undef);
{
	local $ENV{REDIS_SERVER} = 'valkey-server';
	misses('no Valkey, which is asked for', 'valkey-tools', postgres_with('15.9', @client, @headers, @server));
	($status, undef, $output) = run_with(postgres_with('15.9', @client, @headers, @server),
		{ %nobody, 'valkey-cli' => '', 'valkey-check-rdb' => '' }, 'dev/packages');
	is("$status$output", '0', 'a server by the name of a tool is a server');
	$ENV{REDIS_SERVER} = "$folder/other-server";
	says('no such server', qr/^REDIS_SERVER is \S+other-server, which is no server with a client beside it: let it be /,
		postgres_with('15.9', @client, @headers, @server), {%nobody}, 'dev/packages');
}
misses('no more than the base of Perl', 'perl', postgres_with('15.9', @client, @headers, @server),
	perl => 'case $1 in *Test*) exit 1 ;; esac');

# A useless pg_config that is first in the path hides no other one.
my $stray = postgres_with('14.2', @client, @headers, @server);
($status, undef, $output) = run_with('', { %nobody, pg_config => "exec $stray \"\$@\"" },
	'sh', '-c', '. dev/sandbox; sandbox_pg_config $sandbox_complete');
isnt($output, "pg_config\n", 'a version that there is no code for is passed over');

#
# The sentences.
#
my $no_headers = postgres_with('15.9', @client, @server);
says('no apt-get', qr/^This is not Debian: install what corresponds to them/, $no_headers, { 'apt-get' => undef }, 'dev/packages');
says('apt-get fails', qr/^The installation failed, .* try again, or install them yourself: sudo apt-get install postgresql-server-dev-15$/,
	$no_headers, { id => 'echo 1000', sudo => '[ "$1" != -n ] || shift; "$@"', 'apt-get' => 'echo E: nothing; exit 100' }, 'dev/packages');
says('another PostgreSQL than ours', qr/^apt has PostgreSQL here, but not PostgreSQL 15: install any from 15 to 18 with its headers/, $no_headers,
	{ id => 'echo 1000', sudo => '[ "$1" != -n ] || shift; "$@"', 'apt-get' => 'exit 100', 'apt-cache' => '[ "$2" = postgresql-common ]' }, 'dev/packages');
says('what is installed and of no use', qr/^These packages are installed, .* does not work: build-essential\. Look whether another gcc, perl, pg_config or python3/,
	postgres_with('15.9', @client, @headers, @server), { id => 'echo 1000', sudo => 'exit 0', 'apt-get' => 'exit 0', gcc => 'exit 1' }, 'dev/packages');
says('an old PostgreSQL', qr/^PG_CONFIG is .*, which is no pg_config of PostgreSQL 15 to 18: let it name one, or leave it out\.$/,
	postgres_with('14.2', @client, @headers, @server), {%nobody}, 'dev/packages');
says('no PostgreSQL', qr/^PG_CONFIG is \/nowhere, which is no pg_config/, '/nowhere', {%nobody}, 'make', 'demo');

says('root that is nobody else', qr/^PostgreSQL refuses to run as root, .* try again as an ordinary user/, '', { id => 'echo 0', setpriv => 'exit 1' },
	'sh', '-c', '. dev/sandbox; sandbox_choose_user');
{
	local @ENV{qw(ONLY DEMO_SECONDS)} = ('t/nothing', 'a while');
	says('no such test', qr/^No test has "t\/nothing" in its path: let ONLY be /, '', {%nobody}, 'make', 'test');
	says('no such time', qr/^DEMO_SECONDS is 'a while': let it be a number of seconds, or leave it out\.$/, '', {%nobody}, 'make', 'demo');
}

foreach my $goal ('all', 'install', 'installcheck', 'clean')
{
	says("make $goal", qr/\*\*\* To build the outbox first install what is missing: sudo apt-get install postgresql-server-dev-15 /,
		postgres_with('15.9', @client, @server), {%nobody}, 'make', $goal);
}
says('make', qr/\*\*\* To build the outbox first install what is missing: sudo apt-get install build-essential libpq-dev postgresql-server-dev-15 /,
	postgres_with('15.9', @server), { %nobody, gcc => undef }, 'make');

# Nothing is missing, in a copy.
my $complete = postgres_with('15.9', @client, @headers);
my $copy = "$folder/copy";
mkpath([ "$copy/dev", "$copy/src", "$copy/bgworker", "$folder/postgresql/pkglibdir", "$folder/postgresql/sharedir" ]);
PostgreSQL::Test::Utils::system_or_bail('cp', 'Makefile', $copy);
PostgreSQL::Test::Utils::system_or_bail('cp', 'dev/packages', 'dev/sandbox', "$copy/dev");
PostgreSQL::Test::Utils::system_or_bail('cp', 'src/compat.h', "$copy/src");
($status) = run_with($complete, {%nobody}, "$copy/dev/packages", '--build', '', 'install');
is($status, 0, 'it can be built and installed');
chmod 0555, "$folder/postgresql/pkglibdir";
says('a folder that takes other rights', qr/make install writes to \S+pkglibdir, which takes other rights: sudo make install/,
	$complete, {%nobody}, 'make', '-C', $copy, 'install');
chmod 0644, glob "$copy/dev/*";    # as on a file system without modes
chmod 0555, "$copy/src";
says('a folder that is read-only', qr/cannot be written to: build in a copy of it/, $complete, {%nobody}, 'make', '-C', $copy);
chmod 0755, "$copy/src", "$folder/postgresql/pkglibdir";

#
# The place of the private installation.
#
sub place
{
	my ($tmpdir, $df) = @_;
	local $ENV{TMPDIR} = $tmpdir;
	my ($status, $last) = run_with('', { $df ? (df => $df) : () },
		'sh', '-c', '. dev/sandbox; sandbox_choose_user; sandbox_choose_folder; rmdir "$SANDBOX"; echo "$SANDBOX"');
	return $last =~ s{/outbox\.\w{6}$}{}r;
}

my $room = 'echo; echo fs 9 9 9999999 9';
SKIP:
{
	skip 'not every user may write to /var/tmp here', 2 if ((stat '/var/tmp')[2] & oct 777) != oct 777;
	is(place('/var/tmp', $room), '/var/tmp', 'TMPDIR is the place');
	is(place('', 'echo; case $2 in /tmp) echo fs 9 9 10000 9;; *) echo fs 9 9 9999999 9;; esac'), '/var/tmp', 'a /tmp without space is left alone');
}
is(place($_, $room), '/tmp', "... unless it will not do: $_") foreach '/nowhere', 'here', "$folder/with a space", "$folder/a_path/too_long/for_a_socket";
like(place('', 'echo; echo fs 9 9 10000 9'), qr/^There is no place .*: free \d+ MB there, or set TMPDIR to a folder/, '... and if there is none it is said');

says('what nobody thought of', qr/^The set-up failed for the reason above: mend that, then try again\.$/, '', {},
	'sh', '-c', 'set -eu; . dev/sandbox; SANDBOX=; trap sandbox_not_made EXIT; mkdir /proc/outbox');
says('a disk that gets full', qr/^\/tmp is full: free \d+ MB there, or set TMPDIR/, '', { df => 'echo; echo fs 9 9 10 9' },
	'sh', '-c', 'set -eu; . dev/sandbox; SANDBOX=/tmp/outbox.none; trap sandbox_not_made EXIT; mkdir /proc/outbox');

says('a signal', qr/^Signal 9 ended it/, '', {}, 'sh', '-c', 'set -eu; . dev/sandbox; sandbox_setting_up=; SANDBOX=; trap sandbox_not_made EXIT; exit 137');

done_testing();
