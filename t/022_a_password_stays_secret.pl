# The dispatcher logs in with the password of the URL or of the password file, which
# shows in no log, no view and no error.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new(tcp => 1);
my $node = Outbox->create('main', extension => 0, started => 0);
my $file = $node->basedir . '/password';
my $sent = 0;

# Makes the server connect by this URL.
sub use_url
{
	my ($url) = @_;
	return $node->restart_with('outbox.redis_url' => $url);
}

sub write_password
{
	my ($text) = @_;
	open my $handle, '>', $file or die "could not write $file: $!";
	print {$handle} $text;
	close $handle;
	return;
}

sub arrives
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->sends($redis, ++$sent, $name);
}

sub is_refused
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->sql(q{SELECT outbox_enqueue('d', 'x')});
	$sent++;
	ok($node->poll_query_until('postgres', q{SELECT redis_error ~ 'NOAUTH|WRONGPASS|invalid.*password|[Aa]uthentication' FROM outbox.status}),
		"$name: outbox.status says that the login fails");
	is($redis->count('d'), $sent - 1, '... and nothing is sent');
	return;
}

$node->start;
$node->sql('CREATE EXTENSION outbox');
$redis->command('ACL', 'SETUSER', 'worker', 'on', '>p@ss/w:rd', '~*', '+@all');
$redis->command('ACL', 'SETUSER', 'guest', 'on', 'nopass', '~*', '+@all');

# Everybody is let in as the default user; who is named in the URL is another one, also without a password.
use_url($redis->tcp_url('worker@'));
is_refused('a user without the password that he has');
use_url($redis->tcp_url('guest@'));
eventually { $redis->count('d') == $sent } 'a user who has none';
ok($redis->newest_connection_of('guest'), '... is the one who sends');

$redis->command('CONFIG', 'SET', 'requirepass', 'swordfish');
$redis->log_in_with('swordfish');

use_url($redis->tcp_url);
is_refused('no password');
use_url($redis->tcp_url(':swordfish@'));
eventually { $redis->count('d') == $sent } 'a password in the URL';
use_url($redis->tcp_url('worker:p%40ss%2Fw%3Ard@'));
arrives('user and password in the URL, with special characters');
use_url('redis://:swordfish@localhost:' . $redis->port);
arrives('a name of the host');
use_url($redis->tcp_url('worker:wordfish@'));
is_refused('a wrong password');
use_url($redis->tcp_url(':swordfish@') . '/3');
eventually { $redis->cli('--no-auth-warning', '-a', 'swordfish', '-n', 3, 'XLEN', 'd') == $sent }
'a database number: it has no fence, so it gets all that the log still has';

# The file is read at each connect.
write_password("swordfish\n");
$node->append_conf('postgresql.conf', "outbox.redis_password_file = '$file'");
use_url($redis->url);
arrives('a password file, and a unix socket');
use_url('redis://worker@127.0.0.1:' . $redis->port);
is_refused('a user whose password is another');
write_password('p@ss/w:rd');
eventually { $redis->count('d') == $sent } 'the file is read again';
unlink $file;
$redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
$node->sql(q{SELECT outbox_enqueue('d', 'x')});
$sent++;
ok($node->poll_query_until('postgres', "SELECT redis_error LIKE '%password%' FROM outbox.status"), 'a file that is gone is named');
write_password("p\@ss/w:rd\n");
eventually { $redis->count('d') == $sent } '... and used when it is back';

#
# What is refused when it is set, and by which message.
#
foreach my $case (
	[ 'http://127.0.0.1', qr/scheme/ ],
	[ 'redis://:tops3cret@127.0.0.1:99999', qr/port/ ],
	[ 'redis://:tops3cret@127.0.0.1:x', qr/port/ ],
	[ 'redis://:tops3cret@127.0.0.1/minus', qr/database/ ],
	[ 'redis://:tops3cret@', qr/host/ ],
	[ 'unix://', qr/path/ ],
	[ 'redis:/:tops3cret@127.0.0.1', qr/./ ])
{
	my ($url, $reason) = @$case;
	my ($status, undef, $error) = $node->psql('postgres', "ALTER SYSTEM SET outbox.redis_url = '$url'");
	isnt($status, 0, "refused: $url");
	like($error, $reason, '... with the reason');
	unlike($error, qr/tops3cret/, '... without the password') if $url =~ /tops3cret/;
}

# Who may see and set it.
$node->sql('CREATE ROLE nobody LOGIN');
foreach my $sql (
	'SHOW outbox.redis_url',
	q{SELECT current_setting('outbox.redis_url')},
	q{SET outbox.redis_url = 'redis://127.0.0.1'},
	q{SET outbox.redis_password_file = '/etc/passwd'})
{
	like($node->sql_error($sql, 'postgres', extra_params => [ '-U', 'nobody' ]), qr/^42501/, "not for everybody: $sql");
}
is($node->sql(q{SELECT count(*) FROM pg_settings WHERE setting LIKE '%fish%'}, 'postgres', extra_params => [ '-U', 'nobody' ]),
	0, 'pg_settings does not show it');

# The log may quote the statements above, and no other ones.
my $log = join "\n", grep { !/STATEMENT: .*tops3cret/ } split /\n/, $node->log_since(0);
unlike($log, qr/$_/, "not in the log: $_") foreach 'swordfish', 'p@ss/w:rd', 'p%40ss', 'wordfish', 'tops3cret';

done_testing();
