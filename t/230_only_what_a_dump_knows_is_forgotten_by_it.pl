# What has been forgotten stays forgotten, and nothing else is: the tombstones of a dump
# concern the records of that dump, and no id is propagated to a store after it was
# forgotten.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $redis = Redis->new;
my $store = Redis->new;
my $node = Outbox->create('main', redis => $redis);

#
# Data restored into a database that is at work already.
#
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->process($_) foreach 'here', 'never here', 'under way', 'known';
$node->sql("SELECT outbox_forget('$_')") foreach 'here', 'never here', 'under way';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'a database in which ids are forgotten is dumped');
$node->sql('CREATE DATABASE live');
$node->sql('CREATE EXTENSION outbox', 'live');
is($node->process('here', 'live'), 't', 'one of them is processed in another database');
my $claim = $node->session('live');
$claim->query_safe('BEGIN');
$claim->query_safe($_) foreach q{SELECT outbox_begin('under way')}, 'SELECT outbox_commit()';
my $records = PostgreSQL::Test::Utils::tempdir() . '/records';
my ($list) = PostgreSQL::Test::Utils::run_command([ 'pg_restore', '-l', $dump ]);
PostgreSQL::Test::Utils::append_to_file("$records.forgotten", join "\n", grep { /TABLE DATA outbox forgotten / } split /\n/, $list);
PostgreSQL::Test::Utils::append_to_file("$records.record", join "\n", grep { /TABLE DATA outbox record_/ } split /\n/, $list);
$node->command_ok([ 'pg_restore', '-L', "$records.forgotten", '-d', $node->connstr('live'), $dump ], '... to which the tombstones are restored');
$claim->query_safe('COMMIT');
$claim->quit;
$node->command_ok([ 'pg_restore', '-L', "$records.record", '-d', $node->connstr('live'), $dump ], '... and the records');
is($node->process('here', 'live'), 'f', 'what has been processed there is known');
is($node->process('under way', 'live'), 'f', '... also what was just then');
is($node->process('known', 'live'), 'f', '... and what was in the dump');
is($node->process('never here', 'live'), 't', 'what was forgotten, and not processed there, is new');
is($node->process('never here', 'live'), 'f', '... once');

#
# An id that is being processed when it is forgotten.
#
$node->sql("SELECT outbox_create_endpoint('stored', dedup_store => '@{[ $store->url ]}')");
$node->set('outbox.dispatch' => 'off');
my $handler = $node->session;
$handler->query_safe('BEGIN');
$handler->query_safe($_) foreach q{SELECT outbox_begin('s', 'stored')}, 'SELECT outbox_commit()';
my $admin = $node->session;
$admin->query_until(qr/asked/, "\\echo asked\nSELECT outbox_forget('s', 'stored');\n");
eventually { $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'}) == 1 } 'it is waited for';
$handler->query_safe('COMMIT');
$handler->quit;
$admin->query('SELECT 1');
like($admin->{stderr}, qr/is not yet in the deduplication store/, '... and refused then, for the store is yet to learn of it');
$admin->quit;
is($node->process('s', 'postgres', 'stored'), 'f', 'what is still to be added to the store is not forgotten');
$node->set('outbox.dispatch' => 'on');
ok(wait_until { ($node->psql('postgres', q{SELECT outbox_forget('s', 'stored')}))[0] == 0 }, '... until it was added');
is($node->process('s', 'postgres', 'stored'), 't', '... and then it is');

#
# A store that is emptied gets what the log has, but for what was forgotten since.
#
is($node->process('s too', 'postgres', 'stored'), 't', 'one more is processed');
ok(wait_until { ($node->psql('postgres', q{SELECT outbox_forget('s', 'stored')}))[0] == 0 }, '... and the first one is forgotten again');
eventually { $store->count_ids == 1 } '... so that the store has one of the two';
$store->command('FLUSHALL');
eventually { $store->count_ids == 1 } '... which it gets again when it was emptied';
eventually { scalar grep { /^outbox:watermark:/ } @{ $store->command('KEYS', '*') } } '... behind all that the log has';
is($store->count_ids, 1, '... and not the other one');
is($node->process('s', 'postgres', 'stored') . $node->process('s', 'postgres', 'stored'), 'tf', '... which is new, once');
eventually { $store->count_ids == 2 } '... and then comes into the store';

done_testing();
