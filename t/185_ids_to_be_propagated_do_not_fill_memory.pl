# However many ids a transaction has for a store, the dispatcher reads them in pages, and
# its memory does not grow with their number.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils ();
use Proxy;
use Redis;
use Test::More;

use constant IDS => 500_000;

plan skip_all => 'needs /proc' unless -e "/proc/$$/status";

my $redis = Redis->new;
my $store = Redis->new;
my $proxy = Proxy->new($store);
my $node = Outbox->create('main', redis => $redis, conf => "outbox.command_timeout = '1h'\noutbox.connect_timeout = '1h'");

$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '" . $proxy->url . "')");
sub process { my ($id) = @_; return $node->sql("BEGIN; SELECT outbox_begin('$id', 'stored'), outbox_commit(); COMMIT"); }
process('warm');
eventually { $store->cli('DBSIZE') == 2 } 'an id comes to the store';

sub memory_mb
{
	PostgreSQL::Test::Utils::slurp_file('/proc/' . $node->dispatcher . '/status') =~ /^RssAnon:\s+(\d+) kB/m or die;
	return $1 / 1024;
}

# The receipts of many messages, as a dump has them; the store does not answer to the
# first ones.
my $before = memory_mb();
$proxy->hold('EVAL');
$node->sql(<<"END_OF_SQL");
INSERT INTO outbox.log_0 (id, tx, enqueued_at, database, key, endpoint, msgid)
	SELECT i, '1', now(), 1, gen_random_uuid(), 'stored', 'm' || i FROM generate_series(1, @{[ IDS ]}) i
END_OF_SQL
eventually { $proxy->held == 1 } 'many ids in one transaction: the store gets the first ones';
my $grown = memory_mb() - $before;
cmp_ok($grown, '<', 8, '... and they are not all in memory');
note sprintf '%.1f MB', $grown;

done_testing();
