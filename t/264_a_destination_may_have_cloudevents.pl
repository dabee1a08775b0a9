# outbox_set_destination(..., format => 'cloudevents'): entries have the attributes of
# CloudEvents 1.0 as fields, whatever came before and comes after them in a batch.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

# The fields of the entries of a stream.
sub fields
{
	my ($stream) = @_;
	return map { my %pairs = @{ $_->[1] }; [ \%pairs, @{ $_->[1] } / 2 == keys %pairs ] } @{ $redis->command('XRANGE', $stream, '-', '+') };
}

my $time = qr/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

# Compares the last entry of a stream with fields; the time is any.
sub last_is
{
	my ($stream, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($fields, $once) = @{ (fields($stream))[-1] };

	like(delete $fields->{ce_time}, $time, "$name: it has a time");
	is_deeply($fields, { ce_specversion => '1.0', ce_source => '/postgres', ce_type => 'events', %$expected }, $name);
	ok($once, '... and each field once');
	return;
}

$node->sql(q{SELECT outbox_set_destination('events', 'stream of events', format => 'cloudevents')});
is($node->sql('SELECT dest, stream, format, paused FROM outbox.destinations'), 'events|stream of events|cloudevents|f', 'the format is in the view');
$node->sql(q{SELECT outbox_enqueue('events', '{"a": 1}', message_id => 'e1')});
$node->wait_until_sent;
last_is('stream of events', { ce_id => 'e1', body => '{"a": 1}' }, 'without headers');
my ($ce) = fields('stream of events');
my $age = $node->sql("SELECT extract(epoch FROM clock_timestamp() - '$ce->[0]{ce_time}')");
ok($age >= 0 && $age < 600, 'the time is in UTC');

# Headers become attributes if they can.
my $headers = '{"type": "com.example.placed", "source": "/shop", "subject": "o-1", "datacontenttype": "application/json", "sequence": 7,
	"traceparent": "00-1", "X-Tenant": "t1", "data": "d", "sub_id": true}';
$node->sql(qq{BEGIN; SELECT outbox_begin('in-1'), outbox_enqueue('events', 'x', '$headers', 'e2'), outbox_commit(); COMMIT});
$node->wait_until_sent;
my %attributes = (
	ce_type => 'com.example.placed', ce_source => '/shop', ce_subject => 'o-1', 'content-type' => 'application/json',
	ce_sequence => 7, ce_traceparent => '00-1', 'X-Tenant' => 't1', data => 'd', sub_id => 'true');
last_is('stream of events', { ce_id => 'e2', body => 'x', ce_cause => 'in-1', %attributes }, 'headers are attributes');

# Those that have the names of fields already win, but not over the outbox.
$headers = '{"type": "a", "ce_type": "b", "ce_source": "c", "subject": "d", "ce_subject": "e", "datacontenttype": "f", "content-type": "g",
	"specversion": "2", "ce_specversion": "3", "ce_id": "i", "ce_time": "j", "ce_cause": "k"}';
$node->sql(qq{SELECT outbox_enqueue('events', 'x', '$headers', 'e3')});
$node->wait_until_sent;
last_is('stream of events', { ce_id => 'e3', body => 'x', ce_type => 'b', ce_source => 'c', ce_subject => 'e', 'content-type' => 'g' }, 'each once');

# Sent at once, with headers of the session.
$node->sql(q{SET outbox.headers = '{"type": "sent", "source": "/session"}'; SELECT outbox_send('events', 'x', '{"source": "/own"}', 'e4')});
last_is('stream of events', { ce_id => 'e4', body => 'x', ce_type => 'sent', ce_source => '/own' }, 'outbox_send');

# A scheduled message, which comes by another way.
$node->sql(q{SELECT outbox_enqueue('events', 'x', '{"type": "late"}', 'e5', clock_timestamp() + interval '1 s')});
eventually { $redis->count('stream of events') == 5 } 'a scheduled message comes';
last_is('stream of events', { ce_id => 'e5', body => 'x', ce_type => 'late' }, '... in the same form');

# Both forms, with and without the same headers, in one batch and one transaction.
$node->sql(<<'END');
SELECT outbox_set_destination('more', 'mixed', format => 'cloudevents');
SELECT outbox_enqueue(CASE WHEN i % 3 = 0 THEN 'mixed' ELSE 'more' END, i::text,
	CASE i % 4 WHEN 0 THEN '{"subject": "s"}'::jsonb WHEN 1 THEN '{"subject": "s", "type": "t"}' WHEN 2 THEN '{}' END, 'm' || i) FROM generate_series(1, 200) i
END
$node->wait_until_sent;
my @wrong = grep {
	my ($fields, $i) = ($_->[0], $_->[0]{body});
	my %subject = $i % 4 < 2 ? (subject => 's') : ();
	my %expected = $i % 3 == 0
	  ? (id => "m$i", time => $fields->{time}, %subject, $i % 4 == 1 ? (type => 't') : ())
	  : (ce_specversion => '1.0', ce_id => "m$i", ce_source => '/postgres', ce_type => $i % 4 == 1 ? 't' : 'more', ce_time => $fields->{ce_time}, map { ("ce_$_" => 's') } keys %subject);
	join('|', map { "$_=$fields->{$_}" } sort keys %$fields) ne join('|', map { "$_=" . { %expected, body => $i }->{$_} } sort(keys %expected, 'body'))
} fields('mixed');
is_deeply([ map { $_->[0] } @wrong ], [], 'neighbours do not mix');
is(join(' ', $redis->bodies('mixed')), join(' ', 1 .. 200), '... and are in order');

# The database has a name that needs encoding.
$node->sql(q{CREATE DATABASE "Größe 1/2"});
$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_set_destination('events', format => 'cloudevents'); SELECT outbox_enqueue('events', 'x', message_id => 'e6')}, 'Größe 1/2');
eventually { $redis->count('events') == 1 } 'another database sends';
last_is('events', { ce_id => 'e6', body => 'x', ce_source => '/Gr%C3%B6%C3%9Fe%201%2F2' }, 'the source is a reference');

# Back to the plain form.
$node->sql(q{SELECT outbox_set_destination('events', 'stream of events'); SELECT outbox_enqueue('events', 'x', '{"type": "plain"}', 'e7')});
$node->wait_until_sent;
my $last = ($redis->entries('stream of events'))[-1];
is("$last->{id} $last->{body} $last->{headers}{type}", 'e7 x plain', 'the format can be taken back');
like($node->sql_error(q{SELECT outbox_set_destination('events', format => 'avro')}), qr/^22023: invalid format: "avro"/, 'there is no other');
is($node->sql(q{SELECT outbox_set_destination('events', format => 'plain'); SELECT format FROM outbox.destinations WHERE dest = 'events'}) =~ s/^\n//r, 'plain', 'plain may be named');

done_testing();
