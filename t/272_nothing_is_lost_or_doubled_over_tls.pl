# Over TLS, too, what has committed is in Redis once, whether Redis hangs in the middle of
# large messages, ends, is killed, or cuts connections.

use strict;
use warnings FATAL => 'all';

use CertificateAuthority;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

plan skip_all => 'PostgreSQL was built without OpenSSL' unless check_pg_config('#define USE_OPENSSL 1');

my $authority = CertificateAuthority->new('outbox');
my $redis = Redis->new(tls => $authority->issue('IP:127.0.0.1'));
my $node = Outbox->create('main', conf => <<"END");
outbox.redis_url = '@{[ $redis->tls_url ]}'
outbox.redis_tls_ca_file = '@{[ $authority->ca ]}'
outbox.command_timeout = '1s'
END
$node->sql('CREATE TABLE ledger (n bigint)');

# One message in some hundred is larger than what a socket takes at once.
my $script = <<'END';
\set n random(1, 9000000000000000)
BEGIN;
INSERT INTO ledger VALUES (:n);
SELECT outbox_enqueue('ledger', :n::text || CASE WHEN :n % 300 = 0 THEN repeat(' ', 4000000) ELSE '' END);
COMMIT;
END

my %harm = (
	'Redis hangs longer than we wait' => sub { $redis->pause; wait_until { $node->status('redis_state') eq 'down' }; $redis->resume; },
	'Redis hangs for a moment' => sub { $redis->pause; my $log = $node->sql('SELECT count(*) FROM ledger'); wait_until { $node->sql('SELECT count(*) FROM ledger') > $log + 200 }; $redis->resume; },
	'Redis is killed' => sub { $redis->kill9; wait_until { $node->status('redis_state') eq 'down' }; $redis->start; },
	'Redis is restarted' => sub { $redis->restart; },
	'Redis cuts all connections' => sub { $redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') foreach 1 .. 5; },
	'the dispatcher is terminated' => sub { kill 'TERM', $node->dispatcher; });

foreach my $name (sort keys %harm)
{
	my $load = $node->start_load(clients => 3, rate => 300, scripts => [$script]);
	my $count = $redis->count('ledger');

	wait_until { $redis->count('ledger') > $count + 200 };
	$harm{$name}->();
	$load->stop;
	$node->wait_until_sent;
	my ($ledger, $bodies) = ($node->sql('SELECT n FROM ledger'), [ map { s/ +$//r } $redis->bodies('ledger') ]);
	is_exactly_once($bodies, [ split /\n/, $ledger ], $name);
	$redis->command('DEL', 'ledger');
	$node->sql('TRUNCATE ledger');
}

# Bodies of all sizes around that of a record of TLS come as they were.
$node->sql(q{SELECT outbox_enqueue('sizes', repeat(chr(65 + n % 26), n)) FROM generate_series(16000, 17000) n});
$node->wait_until_sent;
my $wrong = grep { $_ !~ /^(.)\1*$/ } $redis->bodies('sizes');
is_deeply([ map { length } $redis->bodies('sizes') ], [ 16000 .. 17000 ], 'bodies of all sizes arrive');
is($wrong, 0, '... as they were');

done_testing();
