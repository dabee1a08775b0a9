# All processes of the server are killed at once, at each kill point in the dispatcher's
# source: what has committed is in Redis, once and in order, and nothing else is.

use strict;
use warnings FATAL => 'all';

use DispatcherWalk;
use Test::More;

my $walk = DispatcherWalk->new;

$walk->walk('server');
$walk->walk_later('server');
$walk->books_agree;
$walk->rings_go_round;
$walk->books_agree;

done_testing();
