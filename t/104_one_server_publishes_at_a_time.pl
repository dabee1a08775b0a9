# Two servers take themselves for the same database, as a clone and its original do, or an
# old primary and the promoted standby. If they have one Redis, the lease decides which
# of them publishes.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $production = Outbox->create('production', redis => $redis,
	init => { allows_streaming => 1 }, conf => "outbox.takeover_delay = '1h'");
my @sent;

sub enqueue
{
	my ($node, @bodies) = @_;
	$node->sql("SELECT outbox_enqueue('d', '$_')") foreach @bodies;
	push @sent, @bodies;
	return;
}

sub all_arrived
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eventually { $redis->count('d') >= @sent } $name;
	is($redis->sequence('d'), join(' ', @sent), '... in order, none twice');
	return;
}

sub lease { return eval { $redis->command('GET', $redis->key('lease')) } // ''; }
sub arrived { my ($body) = @_; return scalar grep { $_ eq $body } $redis->bodies('d'); }
# Wait until a server has noted that all of its messages are sent. It sends again what
# it has not noted, if it finds the fence of another server.
sub has_noted
{
	my ($node) = @_;
	return $node->poll_query_until('postgres', 'SELECT published = number FROM outbox.window_0 ORDER BY number DESC LIMIT 1');
}

sub waits { my ($node) = @_; return $node->status('dispatcher_state') eq 'waiting for the lease'; }

enqueue($production, 1 .. 3);
all_arrived('production sends');
ok(has_noted($production), '... and has noted how far it is');
my $incumbent = $production->dispatcher;
eventually { lease() =~ /process $incumbent$/ } 'its dispatcher holds the lease';

# A connection that is opened again, to read the password, keeps the lease: a server that
# waits for it would take its absence for the end of this one.
sub connection { return (split ' ', $redis->command('GET', $redis->key('fence')))[2]; }
sub released { return $redis->command('INFO', 'commandstats') =~ /cmdstat_del:calls=(\d+)/ ? $1 : 0; }
my ($connection, $released) = (connection(), released());
$production->reload;
eventually { connection() ne $connection } 'when settings are read again, production connects again';
is(released(), $released, '... and has not released the lease');

# Nor does a dispatcher that restarts because settings of its database are new.
my $former = $production->dispatcher;
$production->sql(q{ALTER DATABASE postgres SET work_mem = '5MB'});
eventually { lease() =~ /process (?!$former$)\d+$/ } 'with new settings of the database another dispatcher has the lease';
is(released(), $released, '... which was not released');
$incumbent = $production->dispatcher;
$production->set('outbox.dispatch' => 'off');
eventually { released() > $released } '... as it does when dispatch is off';
$production->set('outbox.dispatch' => 'on');
eventually { lease() ne '' } '... until it is on again';

# A clone, by pg_basebackup, with all its settings.
$production->backup('base');
my $clone = Outbox->new('clone');
$clone->init_from_backup($production, 'base');
$clone->start;
eventually { waits($clone) } 'a clone beside it waits';
like($clone->status('problem'), qr/^Another server has been publishing .*held by .*database \d+, process $incumbent\b.* Stop the server that should not publish/, '... and says for whom, and what to do');
$clone->sql(q{SELECT outbox_enqueue('d', 'of the clone')});
enqueue($production, 4 .. 6);
all_arrived('production goes on undisturbed');
is($production->dispatcher, $incumbent, '... with the same dispatcher');
eventually { $production->status('problem IS NULL') eq 't' } '... nothing is wrong there';
is($clone->status('pending'), 1, 'the clone keeps what it has');

# Production stops cleanly and starts again within the delay.
$production->restart;
$incumbent = $production->dispatcher;
eventually { lease() =~ /process $incumbent$/ } 'production takes its lease again after a restart';
is(arrived('of the clone'), 0, '... and the clone has not used the moment');

# An immediate stop leaves the lease behind; the server that had it knows it again.
$production->stop('immediate');
isnt(lease(), '', 'an immediate stop leaves the lease');
my $log = $production->log_position;
$production->start;
enqueue($production, 7);
all_arrived('... which the same data directory takes over, and sends');
unlike($production->log_since($log), qr/another server has been publishing/, '... without waiting for it');
eventually { waits($clone) } '... while the clone waits';
ok(has_noted($production), '... and has noted it');

# A clean stop gives the lease back.
$clone->set('outbox.takeover_delay' => '2s');
$log = $clone->log_position;
my $taken = seconds
{
	$production->stop('fast');
	is(lease(), '', 'a clean stop gives the lease back');
	push @sent, 'of the clone';
	all_arrived('the clone takes over');
};
cmp_ok($taken, '>', 1.9, '... after outbox.takeover_delay');
eventually { $clone->log_since($log) =~ /this server publishes now/ } '... and the log says so';

# The clone publishes now. When it is killed, its lease must run out.
$production->start;
eventually { waits($production) } 'production waits for the clone now';
$production->sql(q{SELECT outbox_enqueue('d', 'of production')});
eventually { $redis->command('PTTL', $redis->key('lease')) > 6000 } 'the clone renews its lease';
$clone->stop('immediate');
$production->set('outbox.takeover_delay' => '2s');
push @sent, 'of production';
all_arrived('when the clone has died, production takes over');
$production->set('outbox.takeover_delay' => '1h');
$clone->clean_node;

# A standby is promoted while the dispatcher of the old primary is stopped with messages
# to send, which both servers have.
$production->backup('second');
my $standby = Outbox->new('standby');
$standby->init_from_backup($production, 'second', has_streaming => 1);
$standby->start;
$incumbent = $production->dispatcher;
kill 'STOP', $incumbent;
enqueue($production, 'left 1', 'left 2', 'left 3');
$production->wait_for_catchup($standby, 'replay', $production->lsn('insert'));
$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
enqueue($standby, 'new');
eventually { waits($standby) } 'a promoted standby waits for the lease of the old primary';
$standby->set('outbox.takeover_delay' => '2s');
all_arrived('... and takes over when it has run out');
kill 'CONT', $incumbent;
eventually { waits($production) } 'an old primary that wakes up finds the lease taken';
enqueue($standby, 'last');
all_arrived('the new one goes on');

# An administrator switches dispatch off and on.
$production->stop('fast');
$standby->set('outbox.dispatch' => 'off');
eventually { $standby->status('dispatcher_state') eq 'off' } 'outbox.dispatch = off';
like($standby->status('problem'), qr/Dispatch is off/, '... is a problem');
eventually { lease() !~ /process @{[ $standby->dispatcher ]}$/ } '... and gives the lease back';
$standby->sql(q{SELECT outbox_enqueue('d', 'held by hand')});
is($standby->status('pending'), 1, '... messages wait');
push @sent, 'held by hand';
my $lease = $redis->key('fence') =~ s/fence/lease/r;
$redis->command('SET', $lease, '');
$standby->set('outbox.dispatch' => 'on');
eventually { $standby->status('redis_error') =~ /^the lease is held by one that does not say who it is / } 'somebody has written a lease without a name' or diag $standby->status('redis_error');
$redis->command('DEL', $lease);
eventually { arrived('held by hand') } '... until it is on again';
$standby->sql('ALTER DATABASE postgres SET outbox.dispatch = off');
kill 'TERM', $standby->dispatcher;
eventually { $standby->status('dispatcher_state') eq 'off' } 'one database alone is switched off';
$standby->sql('ALTER DATABASE postgres RESET outbox.dispatch');
kill 'TERM', $standby->dispatcher;
$standby->sql(q{SELECT outbox_enqueue('d', 'again')});
eventually { arrived('again') } '... and on';

done_testing();
