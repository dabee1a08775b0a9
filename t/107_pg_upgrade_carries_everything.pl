# After pg_upgrade, what had been sent is not sent again, what had not is sent once, and
# all records are known. The same holds for a copy of a database in the cluster.
# UPGRADE_FROM=/usr/lib/postgresql/15 names an older version to begin with, which has the extension.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $redis = Redis->new;
my $conf = "outbox.takeover_delay = '1s'";
# Since 18 initdb takes checksums of its own accord, and both clusters must be alike.
my @init = $ENV{UPGRADE_FROM} ? (init => { extra => [ '--encoding=UTF8', '--no-locale', '--data-checksums' ] }) : ();
my $old = Outbox->create('old', redis => $redis, conf => $conf, install_path => $ENV{UPGRADE_FROM}, @init);
my $new = Outbox->create('new', redis => $redis, conf => $conf, started => 0, @init);

sub handle
{
	my ($node, $n, $dest, $database) = @_;
	$node->sql("BEGIN; SELECT outbox_begin('m$n'); SELECT outbox_enqueue('$dest', '$n'); SELECT outbox_commit(); COMMIT", $database);
	return;
}

# A dead message holds back a later one of its key.
sub held { my ($node) = @_; return $node->sql(q{SELECT string_agg(message_id || ' ' || state, ', ' ORDER BY id) FROM outbox.deferred WHERE dest = 'keyed'}); }
$old->set('outbox.max_attempts' => 1);
$old->sql(q{SELECT outbox_set_destination('keyed', on_dead => 'hold')});
$redis->refuse('keyed');
$old->sql(qq{SELECT outbox_enqueue('keyed', '$_', message_id => '$_', key => 'k')}) foreach 'k1', 'k2';
eventually { held($old) eq 'k1 dead, k2 held' } 'a message is held back';
$old->set('outbox.max_attempts' => 1000);

$redis->refuse('bad');
handle($old, $_, 'd') foreach 1 .. 3;
handle($old, 'refused', 'bad');
$old->sql(q{SELECT outbox_enqueue('later', 'tomorrow', deliver_at => now() + interval '1 day')});
$old->sql(q{SELECT outbox_set_destination('d2', 'd')});
eventually { $old->status('deferred, scheduled, windows') eq '2|1|0' } 'some are sent, one is refused, one has time';
$old->sql('INSERT INTO outbox.lane VALUES (1)');
$redis->stop;
handle($old, $_, 'd') foreach 4 .. 6;
$old->sql('CREATE DATABASE copy TEMPLATE postgres');
handle($old, 'of the copy', 'copied', 'copy');
ok($old->poll_query_until('copy', 'SELECT i.database = d.oid FROM outbox.instance i, pg_database d WHERE datname = current_database()'),
	'a copy of the database knows that it is one');
$old->stop;

chdir PostgreSQL::Test::Utils::tempdir() or die "chdir: $!";
command_ok([ 'pg_upgrade', '--no-sync', '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-d', $old->data_dir, '-D', $new->data_dir, '-s', $old->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
$new->start;
$redis->start;
ok($new->wait_until_sent('copy'), 'the copy of a database sends');
eventually { $redis->sequence('d') eq '1 2 3 4 5 6' } 'what was not sent yet is, and nothing else';
is($redis->sequence('copied'), 'of the copy', '... nor from the copy');
is($new->status('deferred, scheduled'), '2|1', 'what was deferred and scheduled is there');
is($new->status('deferred, scheduled', 'copy'), '0|0', '... and not in the copy, whose original has it');
is($new->sql('SELECT slot FROM outbox.lane'), 1, 'the lanes that are in use are known');
$redis->accept('bad', 'keyed');
eventually { $redis->count('bad') == 1 } 'what was refused arrives';
is($redis->sequence('bad'), 'refused', '... once');
is($new->sql("SELECT outbox_begin('m$_')"), 'f', "message $_ is known") foreach 1, 3, 6, 'refused';
is($new->sql(q{SELECT count(*) FROM outbox.records}), 7, '... like all others');
handle($new, 7, 'd');
$new->sql(q{SELECT outbox_enqueue('d2', '8')});
eventually { $redis->sequence('d') eq '1 2 3 4 5 6 7 8' } 'new messages go out, settings of destinations hold';
$new->sql(q{SELECT outbox_enqueue('keyed', 'k3', message_id => 'k3', key => 'k')});
eventually { held($new) eq 'k1 dead, k2 held, k3 held' } 'a dead message holds back later ones of its key';
$new->sql(q{SELECT outbox_retry('keyed')});
eventually { $redis->sequence('keyed') eq 'k1 k2 k3' } '... until it is retried: they come in order';
ok($new->wait_until_sent, '... for good');
foreach my $database ('postgres', 'copy')
{
	eventually { $new->status('problem IS NULL', $database) eq 't' } "nothing is wrong in $database";
}
unlike($new->log_since(0), qr/never opened|has no fence|ERROR|PANIC/, '... nor was');

# Redis loses everything: the new cluster sends it again from its log.
$redis->cli('FLUSHALL');
eventually { $redis->sequence('d') eq '1 2 3 4 5 6 7 8' && $redis->sequence('bad') eq 'refused' && $redis->sequence('copied') eq 'of the copy' } 'a Redis that was emptied gets it all again';

done_testing();
