# What answers in place of a PostgreSQL store may send anything: more than any answer has, or
# what libpq would return again and again. It is given up, and no process hangs or grows.

use strict;
use warnings FATAL => 'all';

use Impostor;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

sub message { my ($type, $body) = @_; return $type . pack('N', length($body) + 4) . $body; }
sub row { my ($value) = @_; return message('D', pack('nN', 1, length $value) . $value); }

my $begin = message('1', '') . message('2', '') . message('T', pack('n', 1) . "x\0" . pack('NnNnNn', 0, 0, 16, 1, 0xffffffff, 0));
my $end = message('C', "SELECT 1\0") . message('Z', 'I');
my $value = row('f');
my $notification = message('A', pack('N', 1) . "channel\0" . 'n' x 20000 . "\0");
my $parsed = message('1', '') . message('2', '');

# What is answered to a question, by the name of the database; a code sends it without an end.
my %answer = (
	honest => $begin . $value . $end,
	notifications => $notification x 5 . $begin . $value . $end,
	copy_out => $parsed . message('H', "\0\0\0"),
	copy_in => $parsed . message('G', "\0\0\0"),
	copy_both => $parsed . message('W', "\0\0\0"),
	two_rows => $begin . $value . $value . $end,
	no_row => $begin . $end,
	no_result => message('Z', 'I'),
	two_results => $begin . $value . message('C', "SELECT 1\0") . substr($begin, 10) . $value . $end,
	rows => sub { return $begin, $value x 4096; },
	large_row => sub { return $begin . 'D' . pack('NnN', 1 << 29, 1, (1 << 29) - 10), 'f' x 65536; },
	notices => sub { return '', message('N', "SNOTICE\0M" . 'n' x 10000 . "\0\0"); },
	large_error => sub { return 'E' . pack('N', 1 << 29) . "SERROR\0M", 'e' x 65536; });

sub converse
{
	my ($client) = @_;
	my ($size, $greeting);

	binmode $client;
	return unless read($client, $size, 4) and read($client, $greeting, unpack('N', $size) - 4);
	my ($mode) = $greeting =~ /database\0(\w+)/;
	syswrite $client, message('R', pack('N', 0));
	if ($mode eq 'greeting')
	{
		my $n = 0;
		1 while syswrite $client, message('S', 'parameter' . $n++ . "\0" . 'v' x 20000 . "\0");
		return;
	}
	syswrite $client, message('S', "client_encoding\0UTF8\0") . message('K', "\0" x 8) . message('Z', 'I');
	while (sysread $client, my $question, 65536)
	{
		my ($first, $again) = ref $answer{$mode} ? $answer{$mode}->() : $answer{$mode};
		syswrite $client, $first;
		while ($again) { syswrite $client, $again or return; }
	}
	return;
}

my $redis = Redis->new;
my $impostor = Impostor->talk(\&converse);
my $node = Outbox->create('main', redis => $redis);

# Begins a message in an endpoint whose store is the impostor in that mode. Returns what the session says in the end.
sub begin_with
{
	my ($mode) = @_;
	my ($timed_out, $out, $error);
	my $url = "postgresql://u\@127.0.0.1:" . $impostor->port . "/$mode?sslmode=disable";

	$node->sql("SELECT outbox_create_endpoint('$mode', dedup_store => '$url')");
	$node->psql('postgres', "BEGIN; SELECT outbox_begin('m', '$mode')", stdout => \$out, stderr => \$error, timeout => 170, timed_out => \$timed_out);
	BAIL_OUT("$mode: the session hangs") if $timed_out;
	return $out . $error;
}

like(begin_with('honest'), qr/^t/, 'the impostor can be a store');
like(begin_with($_), qr/could not look up the message in the deduplication store: unexpected answer/, "another kind of answer: $_")
  foreach 'copy_out', 'copy_in', 'copy_both', 'two_rows', 'two_results', 'no_row', 'no_result';
like(begin_with($_), qr/could not look up the message in the deduplication store: (its reply is too large|unexpected answer|lost synchronization)/, "an answer without an end: $_")
  foreach 'rows', 'large_row', 'notices', 'large_error', 'greeting';

# What libpq keeps of the answers to one question after the other.
$node->sql("SELECT outbox_create_endpoint('notifications', dedup_store => 'postgresql://u\@127.0.0.1:" . $impostor->port . "/notifications?sslmode=disable')");
my $memory = $node->sql("BEGIN; SELECT outbox_begin('m', 'notifications'); ROLLBACK;\n" x 1500 .
	  "SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 10000), 'VmHWM:\\s+(\\d+)'))[1]");
is($memory =~ s/^t\n//mg, 1500, 'a store that sends more than an answer can be asked again and again');
cmp_ok($memory, '<', 100_000, '... without taking 100 MB');

# The dispatcher asks all stores as well, and goes on.
$node->sends($redis, 1, 'messages are sent meanwhile');
eventually { $node->sql(q{SELECT problem FROM outbox.problems WHERE kind = 'store'}) =~ /unexpected answer|too large/ } 'there is a problem';
$node->sql('SELECT outbox_drop_endpoint(name, force => true) FROM outbox.endpoint');
ok($node->sql('SELECT pg_terminate_backend(dispatcher_pid, 170000) FROM outbox.status') eq 't', 'the dispatcher can be ended');

done_testing();
