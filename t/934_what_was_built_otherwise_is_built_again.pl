# What was built for another PostgreSQL, or in another way, is built again, and nothing is if all is as
# it was. No compiler is needed for that: another program takes its place, and notes what it is to do.

use strict;
use warnings FATAL => 'all';

use Cwd;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = getcwd();
my $folder = PostgreSQL::Test::Utils::tempdir();
my $tree = "$folder/tree";

# A program with that text.
sub script
{
	my ($name, $text) = @_;

	PostgreSQL::Test::Utils::append_to_file("$folder/$name", "#!/bin/sh\n$text\n");
	chmod 0755, "$folder/$name";
	return "$folder/$name";
}

my $compiler = script('compiler', <<"END");
while [ \$# -gt 0 ]; do
	if [ "\$1" = -o ]; then : >"\$2"; echo "\$2" >>'$folder/compiled'; fi
	shift
done
END

# Runs make in the copy. Returns how many objects it makes.
sub built
{
	my (@arguments) = @_;
	my $output = '';

	unlink "$folder/compiled";
	local @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL)};
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL)};
	IPC::Run::run([ 'make', '-s', '-C', $tree, "CC=$compiler", 'with_llvm=no', "PG_CONFIG=$ENV{PG_CONFIG}", @arguments ],
		'<', \undef, '>&', \$output) or die "make @arguments failed: $output";
	return -e "$folder/compiled" ? scalar grep { /\.o$/ } split /\n/, slurp_file("$folder/compiled") : 0;
}

mkdir $tree;
system('cp', '-R', (map { "$source/$_" } qw(Makefile dev src bgworker outbox.control outbox--1.0.sql)), $tree) == 0 or die 'could not copy';

my $all = built('clean', 'all');
cmp_ok($all, '>', 100, 'make clean all builds all');
is(built(), 0, '... and make nothing then');
is(built('KILL_POINTS=1'), $all + 1, 'with kill points all is another');
is(built('KILL_POINTS=1'), 0, '... once');
is(built('-j4'), $all, '... and without them again');

my $version = qx($ENV{PG_CONFIG} --version) =~ s/^(\D*\d+)[\s\S]*/$1.999/r;
my $other = script('pg_config', qq([ "\$*" = --version ] && exec echo '$version'\nexec '$ENV{PG_CONFIG}' "\$@"));
is(built("PG_CONFIG=$other"), $all, 'all is built for another version');
is(built("PG_CONFIG=$other", 'clean', 'all'), $all, '... also after clean');
is(built("PG_CONFIG=$other"), 0, '... once');
is(built(), $all, '... and for the first one again');

done_testing();
