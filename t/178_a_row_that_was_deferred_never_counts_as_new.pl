# A message that cannot be read is deferred, and before the dispatcher goes on, somebody
# locks outbox.instance as DROP EXTENSION does. When that is over and the body can be
# read after all, the message is sent once.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils qw(slurp_file);
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
autovacuum = off
outbox.retry_delay = '1 s'
outbox.retry_max_delay = '1 s'
END

# To write a row of outbox.deferred takes long.
$node->sql(<<'END');
CREATE FUNCTION slow(id bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_catalog.pg_sleep(5); RETURN id; END $$;
CREATE INDEX ON outbox.deferred (slow(id));
END

$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->sql(q{SELECT outbox_enqueue('d', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n))});
$node->sql('CHECKPOINT');
my $toast = $node->data_dir . '/' . $node->sql(<<'END');
SELECT pg_relation_filepath(reltoastrelid) FROM pg_class, outbox.ring
WHERE pg_class.oid = format('outbox.log_%s', segment)::regclass AND ring = 'log' AND state = 'current'
END
$node->stop;
my $body = slurp_file($toast);
write_toast('');
$node->start;

sub write_toast
{
	open my $file, '>:raw', $toast or die "cannot write $toast: $!";
	print {$file} $_[0];
	close $file or die "cannot write $toast: $!";
	return;
}

my $other = $node->session;
$node->set('outbox.dispatch' => 'on');
eventually { $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher' AND wait_event = 'PgSleep'}) == 1 } 'the message is being deferred';
$other->query_safe('BEGIN; LOCK TABLE outbox.instance IN ACCESS EXCLUSIVE MODE');
is($node->sql('SELECT count(*) FROM outbox.deferred'), '1', 'when it is, the dispatcher may begin no transaction');
write_toast($body);
$other->query_safe('ROLLBACK');
$other->quit;

eventually { $redis->count('d') >= 1 } 'the message is sent';
eventually { $node->sql(q{SELECT count(*) FROM outbox.deferred WHERE state = 'waiting'}) == 0 } 'nothing waits';
$node->sql(q{SELECT outbox_enqueue('e', 'x')});
eventually { $redis->count('e') == 1 } '... nor is on its way';
is($redis->count('d'), 1, 'it was sent once');

done_testing();
