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
sub as_text { my (%field) = @_; return join ', ', map { "$_=$field{$_}" } sort keys %field; }
my @wrong;
foreach my $fields (map { $_->[0] } fields('mixed'))
{
	my $i = $fields->{body};
	my $is_plain = $i % 3 == 0;
	my %expected = $is_plain
	  ? (id => "m$i", time => $fields->{time})
	  : (ce_specversion => '1.0', ce_id => "m$i", ce_source => '/postgres', ce_type => 'more', ce_time => $fields->{ce_time});
	$expected{ $is_plain ? 'subject' : 'ce_subject' } = 's' if $i % 4 < 2;
	$expected{ $is_plain ? 'type' : 'ce_type' } = 't' if $i % 4 == 1;
	$expected{body} = $i;
	push @wrong, as_text(%$fields) if as_text(%$fields) ne as_text(%expected);
}
is_deeply(\@wrong, [], 'neighbours do not mix');
is($redis->sequence('mixed'), join(' ', 1 .. 200), '... and are in order');

# The database has a name that needs encoding.
$node->sql(q{CREATE DATABASE "Größe 1/2"});
$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_set_destination('events', format => 'cloudevents'); SELECT outbox_enqueue('events', 'x', message_id => 'e6')}, 'Größe 1/2');
eventually { $redis->count('events') == 1 } 'another database sends';
last_is('events', { ce_id => 'e6', body => 'x', ce_source => '/Gr%C3%B6%C3%9Fe%201%2F2' }, 'the source is a reference');

# Names that cannot be converted: no text in the encoding of the database; a character that UTF-8 does not have.
my %source = ('€' => '/%E2%82%AC', '㡢배' => '/%E3%A1%A2%EB%B0%B0');
foreach my $database (sort keys %source)
{
	my $count = $redis->count('events');
	$node->sql(qq{CREATE DATABASE "$database" ENCODING 'EUC_JP' TEMPLATE template0});
	$node->sql(q{CREATE EXTENSION outbox; SELECT outbox_set_destination('events', format => 'cloudevents'); SELECT outbox_enqueue('events', 'x', message_id => 'e8')}, $database);
	eventually { $redis->count('events') == $count + 1 } "$source{$database}: a database whose name cannot be converted sends";
	last_is('events', { ce_id => 'e8', body => 'x', ce_source => $source{$database} }, '... and its name is taken as it is');
}

# Headers for all messages may be in postgresql.conf, which sessions read again where nothing
# can be converted; what is wrong there is not taken.
foreach my $database ('postgres', 'latin1')
{
	$node->sql(q{CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0}) if $database eq 'latin1';
	$node->sql(q{CREATE EXTENSION outbox}, $database) if $database eq 'latin1';
	my $session = $node->session($database);
	foreach my $app ('shop', 'bank')
	{
		$node->set('outbox.headers' => qq({"app": "$app"}));
		eventually { $session->query_safe('SHOW outbox.headers') eq qq({"app": "$app"}) } "$database: a session reads headers again";
		is($session->query_safe(q{BEGIN; SELECT outbox_enqueue('conf', 'x'); SELECT headers FROM outbox_enqueued(); ROLLBACK}) =~ s/.*\n//r, qq({"app": "$app"}),
			'... and gives them to messages');
	}
	$node->append_conf('postgresql.auto.conf', q(outbox.headers = '{"id": 1}'));
	my $log = -s $node->logfile;
	$node->reload;
	ok($node->wait_for_log(qr/invalid value for parameter "outbox\.headers": header "id" is reserved/, $log), '... what is wrong is refused');
	is($session->query_safe('SHOW outbox.headers'), '{"app": "bank"}', '... and the session goes on');
	$session->quit;
	$node->sql('ALTER SYSTEM RESET outbox.headers');
	$node->reload;
}

# The process that new sessions come from has no encoding to read escapes in: they do.
$node->set('outbox.headers' => '{"app": "caf\u00e9"}');
foreach my $database ('postgres', 'latin1')
{
	eventually { $node->sql('SHOW outbox.headers', $database) =~ /caf/ } "$database: new sessions have a header with an escape";
	is($node->sql(q{BEGIN; SELECT FROM outbox_enqueue('conf', 'x'); SELECT convert_to(headers ->> 'app', 'UTF8') FROM outbox_enqueued(); ROLLBACK}, $database) =~ s/.*\n//r, '\x636166c3a9', '... and read it');
}

# What a database has no character for is an error there, which names the setting.
$node->set('outbox.headers' => '{"app": "\u20ac"}');
eventually { $node->sql('SHOW outbox.headers', 'latin1') =~ /20ac/ } 'new sessions have a header with another escape';
my (undef, undef, $refusal) = $node->psql('latin1', q{SELECT outbox_enqueue('conf', 'x')});
like($refusal, qr/ERROR: .*CONTEXT: .*setting "outbox\.headers"/s, '... and what is wrong with it is told when it is used');
$node->sql('ALTER SYSTEM RESET outbox.headers');
$node->reload;

# Back to the plain form.
$node->sql(q{SELECT outbox_set_destination('events', reset => '{format}'); SELECT outbox_enqueue('events', 'x', '{"type": "plain"}', 'e7')});
$node->wait_until_sent;
my $last = ($redis->entries('stream of events'))[-1];
is("$last->{id} $last->{body} $last->{headers}{type}", 'e7 x plain', 'the format can be taken back');
like($node->sql_error(q{SELECT outbox_set_destination('events', format => 'avro')}), qr/^22023: invalid format: "avro"/, 'there is no other');
is($node->sql(q{SELECT outbox_set_destination('events', format => 'plain'); SELECT format FROM outbox.destinations WHERE dest = 'events'}) =~ s/^\n//r, 'plain', 'plain may be named');

done_testing();
