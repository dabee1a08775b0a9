# The dispatcher is ended at each kill point in its source, and killed at those that it
# passes again and again: what has committed is in Redis, once and in order, and nothing
# else is.

use strict;
use warnings FATAL => 'all';

use DispatcherWalk;
use Test::More;

my $walk = DispatcherWalk->new;

$walk->walk('end');
$walk->walk_later('end');
$walk->books_agree;
$walk->walk_later('kill');
$walk->rings_go_round;
$walk->books_agree;

done_testing();
