# The numbers of docs/scaling.md that are computed are those that the scripts print.

use strict;
use warnings FATAL => 'all';

use Cwd;
use File::Basename;
use Outbox;
use Page;
use Test::More;

my $root = Cwd::abs_path(dirname(__FILE__) . '/..');
my $python = python() or plan skip_all => 'no python3';
my @computed = grep { /^bench\// } map { $_->[1] } blocks(read_page("$root/docs/scaling.md"));

is(scalar @computed, 3, 'the page has what three commands print');
foreach my $block (@computed)
{
	my ($command, $expected) = split /\n/, $block, 2;
	is(scalar qx($python $root/$command), $expected, $command);
}

done_testing();
