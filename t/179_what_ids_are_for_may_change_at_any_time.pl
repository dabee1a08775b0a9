# Ids that the log still has come into the store, and are marked in the table, that their endpoint
# has now, whenever it was given that: also where it was dropped in between, where the dispatcher was
# restarted before it knew, and where the endpoint had the table before.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.replay_window = '1h'");
my $server = Outbox->create('store', conf => "outbox.redis_url = 'redis://127.0.0.1:1'");
$server->sql(q{CREATE ROLE shard LOGIN; SELECT outbox_grant('shard', 'store')});
my $url = $server->store_url('shard');
my $full = Redis->new;
my $columns = q({"message_id": "ref", "dispatched": "done", "dispatched_at": "done_at"});

sub is_known { return $server->sql("SELECT outbox.store_contains('$_[0]')") eq 't'; }

# Processes a message of an endpoint whose store is full. Returns the key of its record.
sub refused
{
	my ($msgid, $endpoint) = @_;

	$node->process($msgid, undef, $endpoint);
	eventually { $node->status('problem') =~ /deduplication store.*used memory/ } "the store of $endpoint is full, and refuses an id: $msgid";
	return $node->key_of($msgid);
}

# Drops an endpoint whose store is full.
sub leaves
{
	my ($endpoint) = @_;

	$node->sql("SELECT outbox_drop_endpoint('$endpoint', true)");
	eventually { $node->status('problem') eq '' && $node->propagated eq 'all' } "... until $endpoint is dropped";
	return;
}

sub table_of
{
	my ($name) = @_;
	$node->sql("CREATE TABLE $name (ref text COLLATE \"C\" PRIMARY KEY, done boolean NOT NULL DEFAULT false, done_at timestamptz)");
	$node->sql("CREATE INDEX ON $name (done_at) WHERE done");
	return "record_table => '$name', record_columns => '$columns'";
}

sub is_marked { return $node->sql("SELECT done FROM $_[0] WHERE ref = '$_[1]'") eq 't'; }

# A store that others have.
$node->sql("SELECT outbox_create_endpoint('other', dedup_store => '$url')");
$node->process('of other', undef, 'other');
my $other = $node->key_of('of other');
eventually { is_known($other) && $node->propagated eq 'all' } 'a store has an id of an endpoint';

# Another endpoint, whose own store refuses ids, is dropped, and created again with that one.
my $full_url = $full->url;
$full->command('CONFIG', 'SET', 'maxmemory', '1');
$node->sql("SELECT outbox_create_endpoint('shop', dedup_store => '$full_url')");
my $dropped = refused('dropped', 'shop');
leaves('shop');
$node->sql("SELECT outbox_create_endpoint('shop', dedup_store => '$url')");
eventually { is_known($dropped) && $node->propagated eq 'all' } '... and created again with the first store: that gets the id';

# It leaves that one, too, and comes back while nothing is sent, and the server is restarted then: what
# runs afterwards has not seen the change.
$node->sql("SELECT outbox_alter_endpoint('shop', dedup_store => '$full_url')");
my $moved = refused('moved', 'shop');
$node->restart_with('outbox.dispatch' => 'off');
$node->sql("SELECT outbox_alter_endpoint('shop', dedup_store => '$url')");
$node->restart_with('outbox.dispatch' => 'on');
eventually { is_known($moved) && $node->propagated eq 'all' } 'a store that is given before a restart gets the id';

# An endpoint that had none brings its ids where it is created before a restart.
$node->sql("SELECT outbox_create_endpoint('late', dedup_store => '$full_url')");
my $late = refused('late', 'late');
leaves('late');
$node->restart_with('outbox.dispatch' => 'off');
$node->sql("SELECT outbox_create_endpoint('late', dedup_store => '$url')");
$node->restart_with('outbox.dispatch' => 'on');
eventually { is_known($late) && $node->propagated eq 'all' } 'the first store gets it where the endpoint is created before a restart';

# Tables.
my ($of_first, $of_second) = map { table_of($_) } qw(first_inbox second_inbox);
$node->sql("SELECT outbox_create_endpoint('first', $of_first), outbox_create_endpoint('second', $of_second)");
$node->process('m1', undef, 'first');
eventually { is_marked('first_inbox', 'm1') && $node->propagated eq 'all' } 'a record is marked in a table';
foreach my $restart (0, 1)
{
	my $msgid = "unmarked $restart";
	$redis->stop;
	$node->process($msgid, undef, 'second');
	$node->sql(q{SELECT outbox_alter_endpoint('second', reset => '{record_table}')});
	$redis->start;
	eventually { $node->propagated eq 'all' && $node->status('problem') eq '' } 'a message is sent whose endpoint has no table any more';
	ok(!is_marked('second_inbox', $msgid), '... so it is not marked');
	$node->restart_with('outbox.dispatch' => 'off') if $restart;
	$node->sql("SELECT outbox_alter_endpoint('second', $of_second)");
	$node->restart_with('outbox.dispatch' => 'on') if $restart;
	eventually { is_marked('second_inbox', $msgid) && $node->propagated eq 'all' } 'it is marked when the endpoint has the table again' . ($restart ? ', and the server was restarted' : '');
}
is($node->sql(q{SELECT outbox_forget('unmarked 0', 'second')}), 't', '... so it can be forgotten');

# A store is sent ids while endpoints change: one of them leaves it, and comes back while another store
# hangs, so that the dispatcher has not read the endpoints in between.
$node->set('outbox.command_timeout' => '5s');
foreach my $role (qw(shard_behind shard_ahead))
{
	$server->sql("CREATE ROLE $role LOGIN; SELECT outbox_grant('$role', 'store')");
}
my $store = Redis->new;
my $store_url = $store->url;
my @names = qw(behind shop stay ahead);
sub is_in { return $store->command('EXISTS', 'outbox:dedup:' . pack('H*', $_[0])); }
$node->sql("SELECT outbox_drop_endpoint(e, true) FROM unnest('{other,shop,late}'::text[]) e");
my %store_of = (behind => $server->store_url('shard_behind'), ahead => $server->store_url('shard_ahead'));
foreach my $name (@names)
{
	# Stores get their ids in the order of which the last one that was listed is the first.
	$node->sql("SELECT outbox_create_endpoint('$name', dedup_store => '@{[ $store_of{$name} // $store_url ]}')");
	$node->process("before, $name", undef, $name);
	eventually { $node->propagated eq 'all' } "the store of another endpoint is used: $name";
}
$redis->stop;
$node->process("meanwhile, $_", undef, $_) foreach @names;
my ($left, $stays) = map { $node->key_of("meanwhile, $_") } qw(shop stay);
my $locker = $server->session;
$locker->query('BEGIN; LOCK TABLE outbox.record_0, outbox.record_1, outbox.record_2, outbox.record_3 IN EXCLUSIVE MODE');
$redis->start;
eventually { $server->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') > 0 } 'a store hangs';
$node->sql("SELECT outbox_alter_endpoint('shop', dedup_store => '$full_url')");
eventually { is_in($stays) } '... and the next one gets its ids when an endpoint has left it';
$node->sql("SELECT outbox_alter_endpoint('shop', dedup_store => '$store_url')");
$locker->query('ROLLBACK');
eventually { $node->propagated eq 'all' } '... which comes back while the third one hangs';
ok(is_in($left), '... so the store has its ids, too');

# So it is with tables: the table of an endpoint is taken away, and given back, before the dispatcher reads the
# endpoints again, and another one is marked in between.
$node->set('outbox.command_timeout' => '60s');
$locker->query('BEGIN; LOCK TABLE outbox.record_0, outbox.record_1, outbox.record_2, outbox.record_3 IN EXCLUSIVE MODE');
$node->process('hangs', undef, 'behind');
eventually { $server->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') > 0 } 'the store hangs once more';
$redis->stop;
$node->process("gap, $_", undef, $_) foreach qw(first second);
$node->sql(q{SELECT outbox_alter_endpoint('second', reset => '{record_table}')});
$redis->start;
eventually { is_marked('first_inbox', 'gap, first') } 'a record is marked while another endpoint has no table';
$node->sql("SELECT outbox_alter_endpoint('second', $of_second)");
$locker->query('ROLLBACK');
eventually { $node->propagated eq 'all' } '... which is given back its own';
ok(is_marked('second_inbox', 'gap, second'), '... and its record is marked there, too');
$node->set('outbox.command_timeout' => '5s');

# Endpoints are created all the time: others with their store expire nevertheless.
$node->set('outbox.replay_window' => '12s', 'outbox.retention' => '1s', 'outbox.cleanup_interval' => '1s');
$node->sql(q{SELECT outbox_drop_endpoint(e, true) FROM unnest('{behind,ahead}'::text[]) e});
$node->process('old', undef, 'stay');
my $created = 0;
eventually
{
	$node->sql("SELECT outbox_create_endpoint('tenant @{[ $created++ ]}', dedup_store => '$store_url')");
	$node->sql("SELECT count(*) FROM outbox.records WHERE msgid = 'old'") == 0;
}
'records expire while other endpoints with the same store are created';

done_testing();
