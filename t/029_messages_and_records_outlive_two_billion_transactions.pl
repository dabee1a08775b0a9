# What waits, and what is remembered, is there when so many transactions have passed that
# their numbers come again: PostgreSQL has frozen the rows, and knows nothing else of the
# transactions that wrote them.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => <<'END');
outbox.dispatch = off
autovacuum = off
autovacuum_freeze_max_age = 2000000000
END
my $file = PostgreSQL::Test::Utils::tempdir() . '/records';

$node->sql(<<'END');
CREATE TABLE own (message_id text PRIMARY KEY, dispatched boolean NOT NULL, dispatched_at timestamptz);
CREATE INDEX ON own (dispatched_at) WHERE dispatched;
SELECT outbox_create_endpoint('own', record_table => 'own');
UPDATE pg_database SET datallowconn = true;
CREATE DATABASE restored;
END
$node->sql('CREATE EXTENSION outbox', 'restored');
$node->handle('known');
$node->handle('known', 'own');
$node->sql("COPY outbox.record_0 TO '$file'");
$node->sql("COPY outbox.record_0 FROM '$file'", 'restored');

sub many { return "SELECT outbox_enqueue_many('$_[0]', array_agg('x'::text)) FROM generate_series(1, $_[1])"; }
my $never = many('s', 100);
$node->sql("BEGIN; $never; ROLLBACK");
$node->sql("BEGIN; SELECT outbox_enqueue('s', 'first'); SAVEPOINT s; $never; ROLLBACK TO s; SELECT outbox_enqueue('s', 'last'); COMMIT");
$node->sql(many('many', 2000));

# Entries of indexes for rows that were rolled back are left, as VACUUM may do.
foreach my $next (1431, 2862)
{
	$node->stop;
	$node->command_ok([ 'pg_resetwal', '--next-transaction-id', $next * 1024 * 1024, $node->data_dir ], "transaction $next * 2^20");
	$node->start;
	$node->command_ok([ 'vacuumdb', '--all', '--freeze', '--no-index-cleanup', '--quiet' ], '... and VACUUM');
}

foreach my $concurrency ('optimistic', 'pessimistic')
{
	is($node->sql("SELECT outbox_begin('known', concurrency => '$concurrency')"), 'f', "$concurrency: what was processed is known");
	is($node->sql("SELECT outbox_begin('known', 'own', '$concurrency')"), 'f', '... in a custom record table');
	is($node->sql("SELECT outbox_begin('known', concurrency => '$concurrency')", 'restored'), 'f', '... and if it was restored');
}
$node->set('outbox.dispatch' => 'on');
eventually { $redis->sequence('s') eq 'first last' } 'what waited is sent';
eventually { $redis->count('many') == 2000 } '... all of it';
$node->sql(q{SELECT outbox_enqueue('s', 'new')});
eventually { $redis->sequence('s') eq 'first last new' } '... and what comes then';
is($node->sql(q{SELECT outbox_wait('known', 'own', '3 min')}), 't', '... and its record is marked');
eventually { $node->status('problem IS NULL') eq 't' } 'nothing is wrong';

done_testing();
