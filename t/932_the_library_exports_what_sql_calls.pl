# The library exports what PostgreSQL looks up by name, and nothing else: its other
# functions cannot clash with those of another library.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = dirname(__FILE__) . '/..';
my $node = Outbox->create('main');

my @called_by_sql = map { ($_, "pg_finfo_$_") } split /\n/,
	$node->sql(q{SELECT DISTINCT prosrc FROM pg_proc WHERE probin = '$libdir/outbox'});
my @mains_of_workers = slurp_file("$source/src/outbox.h") =~ /#define \w+_MAIN\s+"(\w+)"/g;
my ($library) = $node->sql(q{SELECT setting || '/outbox.so' FROM pg_config WHERE name = 'PKGLIBDIR'});
my ($symbols) = run_command([ 'nm', '-D', '--defined-only', '--format=posix', $library ]);

is_deeply(
	[ sort map { (split)[0] } split /\n/, $symbols ],
	[ sort '_PG_init', 'Pg_magic_func', @called_by_sql, @mains_of_workers ],
	'the library exports what PostgreSQL looks up by name, and nothing else');

# PGXS would install whatever is in one of its own variables.
my ($programs) = $node->sql(q{SELECT setting FROM pg_config WHERE name = 'BINDIR'});
is_deeply([ glob "$programs/*.h" ], [], 'make install puts no header among the programs');

done_testing();
