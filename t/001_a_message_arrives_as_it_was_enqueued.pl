# Every byte of a message, its headers and its fields reach Redis unchanged.

use strict;
use warnings FATAL => 'all';

use Digest::SHA 'sha256_hex';
use Outbox;
use Redis;
use Test::More;
use Time::HiRes 'time';

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my ($id, $entry, @entries);

# Enqueues one message and returns its id and its entry in Redis.
sub send_one
{
	my ($dest, $arguments) = @_;
	my $id = $node->sql("SELECT outbox_enqueue('$dest', $arguments)");

	wait_until { $redis->count($dest) == 1 };
	return ($id, ($redis->entries($dest))[0]);
}

#
# Bodies
#
my $emoji = "\xf0\x9f\x8d\x8b z\xcc\x88 \xe4\xbd\xa0";

foreach my $case (
	[ 'every byte', q{(SELECT string_agg(decode(lpad(to_hex(i), 2, '0'), 'hex'), '' ORDER BY i) FROM generate_series(0, 255) i)},
		join '', map { chr } 0 .. 255 ],
	[ 'NUL bytes alone', q{'\x000000'::bytea}, "\0\0\0" ],
	[ 'line ends and quotes', q{E'a\r\nb''"\\\\\t'}, qq{a\r\nb'"\\\t} ],
	[ 'emoji and combining marks', "'$emoji'", $emoji ],
	[ 'an empty text', q{''}, '' ],
	[ 'an empty bytea', q{''::bytea}, '' ],
	[ 'json as it was written', q{'{"b": 1,  "a":2}'::json}, '{"b": 1,  "a":2}' ],
	[ 'jsonb', q{'{"b": 1,  "a":2}'::jsonb}, '{"a": 2, "b": 1}' ],
	[ 'jsonb null', q{'null'::jsonb}, 'null' ])
{
	my ($name, $sql, $body) = @$case;
	($id, $entry) = send_one($name, $sql);
	is($entry->{body}, $body, "body: $name");
}

$node->sql(<<'END');
CREATE FUNCTION noise(kilobytes integer) RETURNS bytea LANGUAGE sql
AS $$ SELECT string_agg(sha256(i::text::bytea), '' ORDER BY i) FROM generate_series(1, kilobytes * 32) i $$
END
($id, $entry) = send_one('16 MiB', 'noise(16384)');
is(length($entry->{body}), 16 << 20, 'a body of 16 MiB arrives whole');
is(sha256_hex($entry->{body}), $node->sql(q{SELECT encode(sha256(noise(16384)), 'hex')}), '... and unchanged');

$node->sql(q{SELECT outbox_enqueue('sizes', CASE i % 3 WHEN 0 THEN noise(2048) ELSE i::text::bytea END)
	FROM generate_series(1, 9) i});
eventually { $redis->count('sizes') == 9 } 'large and small bodies of one transaction arrive';
is_deeply([ map { length > 1 ? 'large' : $_ } $redis->bodies('sizes') ],
	[ 1, 2, 'large', 4, 5, 'large', 7, 8, 'large' ], '... in order');

#
# Ids, destinations, time
#
($id, $entry) = send_one('given', q{'x', message_id => 'order-7'});
is($id, 'order-7', 'a given message id is returned');
is($entry->{id}, 'order-7', '... and sent');

my $before = int(time * 1000);
($id, $entry) = send_one('fresh', q{'x'});
my $after = int(time * 1000);
like($id, qr/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, 'a fresh message id is a uuid');
is($entry->{id}, $id, '... and is sent');
is_deeply($entry->{fields}, [ 'id', 'time', 'body' ], 'fields of a plain message');
like($entry->{time}, qr/^\d{13}$/, 'time is in milliseconds');
cmp_ok($entry->{time}, '>=', $before, '... not before the call');
cmp_ok($entry->{time}, '<=', $after, '... nor after it');

($id, $entry) = send_one("a b:c/$emoji", q{'x'});
is($entry->{body}, 'x', 'a destination may have any name');

#
# Headers
#
my %header = ('s' => "'text'", 'integer' => 42, 'decimal' => '1.50', 'yes' => 'true', 'no' => 'false', 'empty' => '',
	"clef $emoji" => "\xf0\x9d\x84\x9e", 'CamelCase' => 'X');
($id, $entry) = send_one('headers', qq{'x', '{"s": "''text''", "integer": 42, "decimal": 1.50, "yes": true, "no": false,
	"empty": "", "clef $emoji": "\xf0\x9d\x84\x9e", "CamelCase": "X"}'});
is_deeply($entry->{headers}, \%header, 'headers of every type');
is_deeply([ @{ $entry->{fields} }[ 0 .. 2 ] ], [ 'id', 'time', 'body' ], '... come after the fixed fields');

($id, $entry) = send_one('1000 headers', q{'x', (SELECT jsonb_object_agg('h' || i, i) FROM generate_series(1, 1000) i)});
is(join(' ', map { $entry->{headers}{"h$_"} } 1 .. 1000), join(' ', 1 .. 1000), '1000 headers arrive');

#
# The incoming message
#
$node->sql(<<'END');
BEGIN;
SELECT outbox_enqueue('cause', 'before');
SELECT outbox_begin('in-1');
SELECT outbox_enqueue('cause', 'first', '{"k": "v"}');
SELECT outbox_commit();
SELECT outbox_enqueue('cause', 'between');
SELECT outbox_begin('in-2');
SELECT outbox_enqueue('cause', 'second');
SELECT outbox_commit();
COMMIT;
END
eventually { $redis->count('cause') == 4 } 'messages of two incoming ones and of none arrive';
is_deeply([ map { [ $_->{body}, $_->{cause} // 'none' ] } $redis->entries('cause') ],
	[ [ 'before', 'none' ], [ 'first', 'in-1' ], [ 'between', 'none' ], [ 'second', 'in-2' ] ],
	'... each with its cause');
is_deeply(($redis->entries('cause'))[1]{fields}, [ 'id', 'time', 'body', 'cause', 'k' ], 'order of the fields');

$node->sql(q{BEGIN; SELECT outbox_begin('6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid);
	SELECT outbox_enqueue('uuid', 'x'); SELECT outbox_commit(); COMMIT});
eventually { $redis->count('uuid') == 1 } 'an incoming uuid';
is(($redis->entries('uuid'))[0]{cause}, '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '... is the cause as text');

done_testing();
