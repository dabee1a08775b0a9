# Messages that cannot be sent are refused when they are enqueued. What is stored
# nevertheless, or is damaged later, is deferred as if Redis had refused it.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, conf => "outbox.max_attempts = 3\nfull_page_writes = on\nautovacuum = off");
my $huge = q{(SELECT jsonb_object_agg('h' || n, 1e131071) FROM generate_series(1, 200) n)};

# A number of 12 bytes is one of 131072 when it is printed.
like($node->sql_error("SELECT outbox_enqueue('d', 'x', headers => $huge)"), qr/^54000: headers are too large/, 'headers are counted as they are sent');
my ($status, $out, $error) = $node->psql('postgres', "SELECT outbox_enqueue('d', 'x', headers => $huge)");
like($error, qr/DETAIL:  They have 26215092 bytes as they are sent; 1048576 are allowed/, '... and the error shows the sum');
like($node->sql_error("SELECT outbox_send('d', 'x', headers => $huge)"), qr/^54000: /, '... by outbox_send, too');
$node->sql(q{SELECT outbox_enqueue('d', '1', headers => jsonb_build_object('h', 1e131071))});

# A row that is inserted by SQL, as from a dump.
my $insert = sub {
	my ($dest, $headers, $body) = @_;
	my $segment = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
	return "INSERT INTO outbox.log_$segment VALUES (1, pg_current_xact_id(), now(), (SELECT oid FROM pg_database WHERE datname = current_database()),"
	  . " gen_random_uuid(), '$dest', $body, NULL, NULL, $headers);";
};
like($node->sql_error($insert->('d', $huge, q{''})), qr/^54000: /, 'a restore refuses them');
like($node->sql_error($insert->('d', q{(SELECT jsonb_object_agg('h' || n, n) FROM generate_series(1, 5000) n)}, q{''})), qr/^54000: too many headers/, '... however short they are');
like($node->sql_error($insert->('d', q{'[1]'}, q{''})), qr/^22023: headers must be/, '... and what are no headers');

# Changes the rows that a transaction has enqueued, before they are read.
sub changed
{
	my ($enqueue, @changes) = @_;
	my $segment = $node->sql(q{SELECT segment FROM outbox.ring WHERE ring = 'log' AND state = 'current'});
	$node->sql("BEGIN; $enqueue;" . join('', map { "UPDATE outbox.log_$segment SET $_;" } @changes) . 'COMMIT');
	return;
}

eventually { $redis->count('d') == 1 } 'what is just small enough is sent';
my $dispatcher = $node->dispatcher;
my $log = $node->log_position;
changed(q{SELECT outbox_enqueue(d, b) FROM (VALUES ('nested', 'x'), ('d', '2'), ('list', 'x'), ('many', 'x'), ('d', '3')) m (d, b)},
	q{headers = '{"a": {"b": 1}}' WHERE dest = 'nested'},
	q{headers = '[1, 2]' WHERE dest = 'list'},
	q{headers = (SELECT jsonb_object_agg('h' || n, n) FROM generate_series(1, 5000) n) WHERE dest = 'many'});
eventually { $redis->count('d') == 3 } 'what is stored nevertheless stops no other message';
eventually { $node->sql(q{SELECT string_agg(dest || ': ' || last_error, ', ' ORDER BY dest) FROM outbox.dead_letters}) eq
	'list: headers must be a JSON object, many: too many headers, nested: header "a" must be a string, a number or a boolean' }
'... it dies like what Redis refuses, with the error';
is($node->dispatcher, $dispatcher, '... and ends no dispatcher');

# Two messages with the same id, neither of which can be sent.
$redis->refuse('refused');
changed(q{SELECT outbox_enqueue(d, b) FROM (VALUES ('refused', 'one'), ('refused', 'two'), ('d', '4')) m (d, b)},
	q{id = 1000000000 WHERE dest = 'refused'});
eventually { $redis->count('d') == 4 } 'an id that two messages have stops no other message';
eventually { $node->sql(q{SELECT string_agg(convert_from(body, 'UTF8'), ' ' ORDER BY body) FROM outbox.dead_letters WHERE dest = 'refused'}) eq 'one two' }
'... and both are kept';
is($node->dispatcher, $dispatcher, '... by the same dispatcher');

# A body, stored out of line, whose pages are lost; with it go headers of a message that was sent.
$node->sql(q{SELECT outbox_enqueue('again', 'x'), outbox_enqueue('sent', 'x', (SELECT jsonb_build_object('h', string_agg(md5(n::text), '')) FROM generate_series(1, 1000) n))});
eventually { $redis->count('sent') == 1 && $redis->count('again') == 1 } 'messages are sent, one of them with large headers';
$node->set('outbox.dispatch' => 'off');
eventually { $node->status('dispatcher_state') eq 'off' } 'dispatch is off';
$node->sql(<<'END');
SELECT outbox_enqueue('damaged', string_agg(md5(n::text), '')) FROM generate_series(1, 1000) n;
SELECT outbox_enqueue('d', '5');
CHECKPOINT;
END
my $toast = $node->sql(q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class, outbox.ring
	WHERE pg_class.oid = format('outbox.log_%s', segment)::regclass AND ring = 'log' AND state = 'current'});
$node->stop;
my $file = $node->data_dir . "/$toast";
my $size = -s $file;
open my $pages, '+<', $file or die "open: $!";
print {$pages} "\0" x $size;
close $pages;
$node->start;
$dispatcher = $node->dispatcher;
$node->set('outbox.dispatch' => 'on');
eventually { $redis->count('d') == 5 } 'a damaged message stops no other';
eventually { $node->sql(q{SELECT body IS NULL, last_error FROM outbox.dead_letters WHERE dest = 'damaged'}) =~ /^t\|.*toast/ } '... it is dead, without the body';
is($node->dispatcher, $dispatcher, '... and ended no dispatcher');
ok($node->wait_until_sent, 'nothing is left');
is($redis->sequence('d'), '1 2 3 4 5', 'the others are in order');
is($node->sql(q{SELECT outbox_replay('-infinity', 'again')}), 1, 'what can be read is sent again');
like($node->sql_error(q{SELECT outbox_replay('-infinity', 'sent')}), qr/toast/, '... and what cannot be is an error');

# The same in outbox.deferred.
$node->sql(q{SELECT outbox_enqueue('later', string_agg(md5(n::text), ''), deliver_at => now() + interval '1 hour') FROM generate_series(1, 1000) n});
eventually { $node->status('scheduled') == 1 } 'a scheduled message';
$node->sql('CHECKPOINT');
$toast = $node->sql(q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'outbox.deferred'::regclass});
$node->stop;
$file = $node->data_dir . "/$toast";
$size = -s $file;
open $pages, '+<', $file or die "open: $!";
print {$pages} "\0" x $size;
close $pages;
$node->start;
$dispatcher = $node->dispatcher;
$node->sql(q{UPDATE outbox.deferred SET next_attempt = now() WHERE dest = 'later'});
$node->sql(q{SELECT outbox_enqueue('d', '6')});
eventually { $redis->count('d') == 6 } '... that is damaged stops no other';
eventually { $node->sql(q{SELECT last_error FROM outbox.dead_letters WHERE dest = 'later'}) =~ /toast/ } '... and is dead';
is($node->dispatcher, $dispatcher, '... nor ends the dispatcher');

done_testing();
