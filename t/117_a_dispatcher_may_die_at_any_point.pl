# The dispatcher is ended, and is killed, at each kill point in its source: what
# committed is in Redis, once and in order; what did not is not there.

use strict;
use warnings FATAL => 'all';

use DispatcherWalk;
use Test::More;

my $walk = DispatcherWalk->new;

foreach my $manner ('end', 'kill')
{
	$walk->walk($manner);
	$walk->walk_later($manner);
	$walk->books_agree;
}
$walk->rings_go_round;
$walk->books_agree;

done_testing();
