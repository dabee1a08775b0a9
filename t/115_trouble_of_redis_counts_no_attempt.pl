# In each state in which Redis as a whole cannot be used, callers do not notice anything,
# nothing is lost or doubled, and no attempt of a message is counted.

use strict;
use warnings FATAL => 'all';

use IO::Socket::UNIX;
use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new(tcp => 1, config => [ '--enable-debug-command', 'local', '--enable-protected-configs', 'local', '--busy-reply-threshold', '100' ]);
my $node = Outbox->create('main', conf => "outbox.redis_url = '" . $redis->tcp_url . "'\noutbox.max_attempts = 2");
my @sent;

# A client that connects before the state begins.
my $socket = IO::Socket::UNIX->new(Peer => $redis->socket) or die "could not connect: $!";
binmode $socket;

sub command
{
	my (@words) = @_;
	print {$socket} '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words;
	$socket->flush;
	return Redis::read_reply($socket);
}

sub enqueue
{
	my ($body) = @_;
	push @sent, $body;
	return seconds { $node->sql("SELECT outbox_enqueue(d, '$body') FROM unnest('{a,b}'::text[]) d") };
}

# Enqueues before, in and after a state, which must be reported as $error.
sub outlives
{
	my ($name, $error, $enter, $leave, $advice) = @_;

	enqueue("before $name");
	ok($node->wait_until_sent, "$name: Redis works");
	$enter->();
	cmp_ok(enqueue("in $name"), '<', 150, '... the caller does not wait');
	eventually { $node->status('redis_state') eq 'down' && $node->status('redis_error') =~ $error } '... status says what Redis says'
	  or diag $node->status('redis_state, redis_error');
	# A later attempt may end in another way, as where Redis answers too late.
	eventually { $node->status('problem') =~ /^Redis cannot be used, so messages wait: .*$error/ } '... and problem'
	  or diag $node->status('problem');
	eventually { $node->status('problem') =~ $advice } '... with what to do' if $advice;
	is($node->status('pending'), 2, '... messages wait');
	is($node->sql('SELECT count(*) FROM outbox.deferred'), 0, '... and are not to blame');
	$leave->();
	enqueue("after $name");
	eventually { 0 == grep { $redis->count($_) < @sent } 'a', 'b' } '... it ends and dispatch goes on';
	ok($node->wait_until_sent, '... for good');
	is(join(', ', $redis->bodies($_)), join(', ', @sent), "... $_: in order, none twice") foreach 'a', 'b';
	eventually { $node->status('problem IS NULL') eq 't' } '... nothing is wrong';
	return;
}

# Sets something, and takes it back.
sub outlives_setting
{
	my ($error, $setting, $bad, $good, $advice) = @_;
	return outlives($setting, $error, sub { command('CONFIG', 'SET', $setting, $bad) }, sub { command('CONFIG', 'SET', $setting, $good) }, $advice);
}

# After SCRIPT FLUSH a batch is sent once more.
enqueue('with the script');
ok($node->wait_until_sent, 'messages arrive');
command('SCRIPT', 'FLUSH');
my $log = $node->log_position;
enqueue('without the script');
ok($node->wait_until_sent, 'a script that is gone is loaded again');
is(join(', ', $redis->bodies('a')), join(', ', @sent), '... nothing is lost or doubled');
unlike($node->log_since($log), qr/Redis cannot be used/, '... and no word is lost about it');

outlives_setting(qr/NOREPLICAS/, 'min-replicas-to-write', 1, 0, qr/Start the replicas/);
outlives_setting(qr/OOM/, 'maxmemory', 1, 0, qr/\. Trim streams, or raise maxmemory/);

outlives('read only', qr/READONLY/,
	sub { command('REPLICAOF', '127.0.0.1', PostgreSQL::Test::Cluster::get_free_port()) },
	sub { command('REPLICAOF', 'NO', 'ONE') }, qr/Use the address of the master in outbox\.redis_url/);
outlives('without its master', qr/MASTERDOWN|READONLY/,
	sub { command('CONFIG', 'SET', 'replica-serve-stale-data', 'no'); command('REPLICAOF', '127.0.0.1', PostgreSQL::Test::Cluster::get_free_port()) },
	sub { command('REPLICAOF', 'NO', 'ONE') });

# Another client's script does not end.
my $loop;
outlives('busy', qr/BUSY/,
	sub {
		$loop = $redis->start_cli('EVAL', 'while true do end', 0);
		wait_until { eval { command('PING') }; $@ =~ /BUSY/ };
	},
	sub { command('SCRIPT', 'KILL'); eval { $loop->finish } });

# Redis cannot write its snapshot.
my $obstacle = "$redis->{folder}/data/dump.rdb";
outlives('without snapshots', qr/MISCONF/,
	sub {
		mkdir $obstacle or die "mkdir: $!";
		command('CONFIG', 'SET', 'save', '3600 1000000');
		command('BGSAVE');
		wait_until { command('INFO', 'persistence') =~ /rdb_bgsave_in_progress:0\r\n[^*]*rdb_last_bgsave_status:err/ };
	},
	sub {
		rmdir $obstacle or die "rmdir: $!";
		command('BGSAVE');
		wait_until { command('INFO', 'persistence') =~ /rdb_last_bgsave_status:ok/ };
		command('CONFIG', 'SET', 'save', '');
	}, qr/Repair the disk that Redis writes to/);

# Redis loads a large file, slowly.
my $loading;
command('DEBUG', 'POPULATE', 100000);
outlives('loading', qr/LOADING/,
	sub {
		command('CONFIG', 'SET', 'loading-process-events-interval-bytes', 1024);
		command('CONFIG', 'SET', 'key-load-delay', 2000);
		$loading = $redis->start_cli('DEBUG', 'RELOAD');
		wait_until { eval { command('PING') }; $@ =~ /LOADING/ };
	},
	sub {
		command('CONFIG', 'SET', 'key-load-delay', 0);
		$loading->finish;
	});

# Redis asks for a password; then for another one.
outlives('password wanted', qr/NOAUTH/,
	sub {
		command('CONFIG', 'SET', 'requirepass', 'secret');
		command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	},
	sub { command('CONFIG', 'SET', 'requirepass', '') });
outlives('wrong password', qr/WRONGPASS|without any password configured/,
	sub {
		$node->set('outbox.redis_url' => $redis->tcp_url(':wrong@'));
		command('CONFIG', 'SET', 'requirepass', 'secret');
		command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	},
	sub {
		$redis->log_in_with('secret');
		$node->set('outbox.redis_url' => $redis->tcp_url(':secret@'));
	});

outlives('too many clients', qr/max number of clients/,
	sub {
		command('CONFIG', 'SET', 'maxclients', 1);
		command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
	},
	sub { command('CONFIG', 'SET', 'maxclients', 1000) });

is($node->sql('SELECT count(*) FROM outbox.deferred'), 0, 'nothing was ever deferred');

done_testing();
