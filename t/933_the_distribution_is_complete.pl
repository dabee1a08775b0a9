# What is given to PGXN and Debian: META.json is as PGXN wants it, all files say the same
# version, and what make dist makes has all that it takes to build it without git.

use strict;
use warnings FATAL => 'all';

use JSON::PP;
use Page;
use PostgreSQL::Test::Utils;
use Test::More;

my $meta = decode_json(read_page('META.json'));

# https://pgxn.org/spec
my %known = map { $_ => 1 } qw(name abstract description version release_status maintainer license prereqs provides tags
  meta-spec generated_by no_index resources);
my $semantic = qr/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;
is_deeply([ grep { !$meta->{$_} } qw(name abstract maintainer license provides version meta-spec) ], [], 'META.json has what PGXN requires');
is_deeply([ grep { !$known{$_} && !/^x_/i } keys %$meta ], [], '... and nothing that it does not know');
is($meta->{'meta-spec'}{version}, '1.0.0', '... by that version of its specification');
is($meta->{license}, 'postgresql', '... with a license that it knows');
like($meta->{release_status}, qr/^(stable|testing|unstable)$/, '... and a status');
like($_, $semantic, 'PGXN understands the version') foreach $meta->{version}, map { $_->{version} } values %{ $meta->{provides} };
like($_, qr/^(0|\d+\.\d+\.\d+)$/, 'PGXN understands the version of what is required')
  foreach values %{ $meta->{prereqs}{runtime}{requires} };
ok(-e $meta->{provides}{outbox}{$_}, "there is the $_ that META.json names") foreach qw(file docfile);

# 1.0 of the extension is 1.0.0 of the distribution.
my $version = $meta->{version};
my ($default) = read_page('outbox.control') =~ /^default_version = '(.*)'$/m;
like($version, qr/^\Q$default\E\.\d+$/, 'outbox.control has the version of META.json');
is($meta->{provides}{outbox}{version}, $version, 'META.json has one version');
ok(-e "outbox--$default.sql", 'there is a script of that version');
like(read_page('CHANGELOG.md'), qr/^# Changes\n\n## \Q$default\E /, 'it is the first in CHANGELOG.md');
like(read_page('debian/changelog'), qr/^outbox \(\Q$version\E\) /, '... and in debian/changelog');
like(read_page('packaging/cloudnative-pg.yaml'), qr/version: "\Q$default\E"$/m, '... and in packaging/cloudnative-pg.yaml');

# What pg_buildext makes of debian/control.in where Debian has PostgreSQL 15.
is(read_page('debian/control'), read_page('debian/control.in') =~ s/PGVERSION/15/gr, 'debian/control is up to date');
my ($first, $last) = read_page('src/compat.h') =~ /^#error "outbox supports PostgreSQL (\d+) to (\d+)"$/m;
is(read_page('debian/pgversions'), join('', map { "$_\n" } $first .. $last), 'packages are made for all versions that there is code for');

# Here is no git, which is the other way to make it; what the tests run with was built from
# this very tree. What a build leaves does not go along.
my $folder = PostgreSQL::Test::Utils::tempdir();
my ($python) = run_command([ 'sh', '-c', '. dev/sandbox && sandbox_python' ]);
command_ok([ 'sh', 'dev/dist' ], 'make dist');
command_ok([ $python, '-m', 'zipfile', '-e', "dist/outbox-$version.zip", $folder ], 'it can be unpacked');
my ($differences) = run_command([ 'diff', '-rq', "$folder/outbox-$version", '.' ]);
my $built = qr/^Only in \.(\/\S+)?: (\S+\.(o|so|bc|lua\.h)|exports\.\w+|__pycache__)$/;
my $left = qr/^Only in \.: (dist|log|results|output_iso|tmp_check|regression\.\w+)$/;
is_deeply([ grep { !/$built|$left/ } split /\n/, $differences ], [], 'it has all files of the tree, and no other');
like($differences, qr{^Only in \./src: outbox\.o$}m, '... which was built');
command_ok([ 'make', '-C', "$folder/outbox-$version", '-n', 'install', 'with_llvm=no', "PG_CONFIG=$ENV{PG_CONFIG}", "DESTDIR=$folder/installed" ],
	'it knows how to be built and installed');

done_testing();
