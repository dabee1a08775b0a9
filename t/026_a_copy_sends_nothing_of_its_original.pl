# CREATE DATABASE ... TEMPLATE copies what is pending and what was sent. The copy sends
# neither, as long as the original exists.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);

sub enqueue
{
	my ($database, $body, $dest) = @_;
	$node->sql("SELECT outbox_enqueue('" . ($dest // 'd') . "', '$body')", $database);
	return;
}

sub sent { return join ' ', sort $redis->bodies($_[0] // 'd'); }

sub all_sent
{
	my ($name, @databases) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(2 == grep({ $node->wait_until_sent($_) } @databases), $name);
}

$node->sql('CREATE DATABASE original');
$node->sql('CREATE EXTENSION outbox', 'original');
enqueue('original', 'old');
$redis->refuse('bad');
enqueue('original', 'refused', 'bad');
ok($node->poll_query_until('original', 'SELECT deferred = 1 AND windows = 0 FROM outbox.status'), 'one is sent, one deferred');
$redis->stop;
enqueue('original', 'pending');
$node->sql('CREATE DATABASE copy TEMPLATE original');
enqueue('copy', 'mine');
enqueue('original', 'later');

$redis->start;
$redis->accept('bad');
all_sent('original and copy send', 'original', 'copy');
is(sent(), 'later mine old pending', 'each its own, once');
is(sent('bad'), 'refused', '... also what was deferred');

# Redis loses everything: each database sends its own messages again.
$redis->stop;
$redis->lose_data;
enqueue('copy', 'more');
enqueue('original', 'last');
$redis->start;
eventually { $redis->count('d') == 6 && $redis->count('bad') == 1 } 'a Redis that was emptied gets it all again';
all_sent('... all of it', 'original', 'copy');
is(sent(), 'last later mine more old pending', '... each from its own database, once');
is(sent('bad'), 'refused', '... also what was deferred');

# A copy of a copy, and the fences of all survive a restart.
$node->sql('CREATE DATABASE second TEMPLATE copy');
enqueue('second', 'copied twice');
eventually { $redis->count('d') == 7 } 'a copy of a copy sends its own';
$node->restart;
enqueue($_, "by $_") foreach 'original', 'copy', 'second';
eventually { $redis->count('d') == 10 } 'after a restart each sends its own';
is(sent(), 'by copy by original by second copied twice last later mine more old pending', '... once');
isnt($node->sql('SELECT id FROM outbox.instance', 'copy'), $node->sql('SELECT id FROM outbox.instance', $_), "copy and $_ have different names")
  foreach 'original', 'second';

# The original goes before the copy is opened: the copy takes its place.
$redis->stop;
enqueue('original', 'inherited');
$node->sql('CREATE DATABASE heir TEMPLATE original ALLOW_CONNECTIONS false');
$node->sql('DROP DATABASE original');
$node->sql('ALTER DATABASE heir ALLOW_CONNECTIONS true');
$redis->start;
eventually { $redis->count('d') == 11 } 'a copy whose original is gone sends what that would have sent';
enqueue('heir', 'its own');
eventually { $redis->count('d') == 12 } '... and its own';
is(sent(), 'by copy by original by second copied twice inherited its own last later mine more old pending', '... once');

# Two copies of an original that is gone: the first one takes its place.
$redis->stop;
enqueue('heir', 'inherited once');
$node->sql("CREATE DATABASE $_ TEMPLATE heir ALLOW_CONNECTIONS false") foreach 'twin', 'other_twin';
$node->sql('DROP DATABASE heir');
$node->sql("ALTER DATABASE $_ ALLOW_CONNECTIONS true") foreach 'twin', 'other_twin';
$redis->start;
enqueue($_, "by $_") foreach 'twin', 'other_twin';
eventually { $redis->count('d') >= 15 } 'two copies of one that is gone send';
all_sent('... all of it', 'twin', 'other_twin');
is(sent(), 'by copy by original by other_twin by second by twin copied twice inherited inherited once its own last later mine more old pending',
	'... what it left once');
$node->restart;
enqueue($_, "again by $_") foreach 'twin', 'other_twin';
eventually { $redis->count('d') >= 17 } '... also after a restart';
all_sent('... all of it', 'twin', 'other_twin');
is($redis->count('d'), 17, '... once');

# A copy of a copy that is dropped before its dispatcher ever ran. DROP DATABASE waits for all processes.
my $launcher = $node->sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'outbox launcher%'");
kill 'STOP', $launcher;
$node->sql('CREATE DATABASE middle TEMPLATE copy');
enqueue('middle', 'of the middle');
$node->sql('CREATE DATABASE end_of_line TEMPLATE middle');
enqueue('end_of_line', 'of the last');
$node->sql("ALTER DATABASE $_ ALLOW_CONNECTIONS false") foreach 'middle', 'end_of_line';
kill 'CONT', $launcher;
$node->sql('DROP DATABASE middle');
$node->sql('ALTER DATABASE end_of_line ALLOW_CONNECTIONS true');
my $took = seconds { eventually { $redis->count('d') >= 19 } 'a copy of a copy that never ran sends what was left there, and its own' };
cmp_ok($took, '<', 55, '... when connections are allowed, and not when the launcher next looks');
all_sent('... all of it', 'copy', 'end_of_line');
is($redis->count('d'), 19, '... once');
like(sent(), qr/of the last of the middle/, '... and nothing else');

# A database that had a dispatcher, and is dropped, leaves nothing to its copies.
$node->sql('CREATE DATABASE begins TEMPLATE copy ALLOW_CONNECTIONS false');
kill 'STOP', $launcher;
$node->sql('ALTER DATABASE begins ALLOW_CONNECTIONS true');
enqueue('begins', 'by begins');
$node->sql('CREATE DATABASE late TEMPLATE begins');
enqueue('late', 'by late');
$node->sql('ALTER DATABASE late ALLOW_CONNECTIONS false');
kill 'CONT', $launcher;
eventually { $redis->count('d') >= 20 } 'a copy sends its own';
ok($node->wait_until_sent('begins'), '... all of it');
$node->sql('DROP DATABASE begins');
$node->sql('ALTER DATABASE late ALLOW_CONNECTIONS true');
eventually { $redis->count('d') >= 21 } '... and so does a copy of it that begins when that is gone';
all_sent('... all of it', 'copy', 'late');
is($redis->count('d'), 21, '... and nothing else');

END { kill 'CONT', $launcher if $launcher; }
done_testing();
