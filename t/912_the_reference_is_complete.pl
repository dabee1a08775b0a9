# docs/reference.md is complete and right: functions with their arguments, settings with
# their defaults, views with their columns, the SQLSTATEs that the code raises, the
# permissions that are needed in Redis. Its commands run, and so do those of
# docs/operations.md, of which removing the extension comes last.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use Page;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $root = dirname(__FILE__) . '/..';
my $reference = read_page("$root/docs/reference.md");
my $operations = read_page("$root/docs/operations.md");
my $redis = Redis->new(tcp => 1);
my $node = Outbox->create('main', redis => $redis);

# Runs the SQL of a section.
sub follow
{
	my ($page, $heading) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	type_into_psql($node, $_->[1]) foreach grep { $_->[0] eq 'sql' } blocks(section($page, $heading));
	return;
}

#
# Functions
#
follow($reference, '### A handler in one statement');
follow($reference, '### Many messages');
follow($reference, '### outbox_begin_message, outbox_enqueue_message, outbox_commit_message');
follow($reference, '### Headers');
$node->wait_until_sent;
is_deeply([ map { $_->{cause} } $redis->entries('placed') ], ['msg-21'], 'one statement was a handler');
is($redis->count('mails'), 1008, 'many messages were sent');

#
# Fields of entries
#
sub is_as_described
{
	my ($fields, $heading, $dest, $headers) = @_;
	my @described = map { [ map { s/\`//gr } split / \| / ] } section($reference, $heading) =~ /^\| (\`.*) \|$/mg;
	my @always = map { $_->[0] } grep { $_->[3] eq 'always' } @described;
	my @own = grep { !/\*/ } map { $_->[0] } @described;

	$node->sql("SELECT outbox_enqueue('$dest', 'x'); BEGIN; SELECT outbox_begin('in $dest'), outbox_enqueue('$dest', 'x', '$headers', key => 'k'), outbox_commit(); COMMIT");
	$node->wait_until_sent;
	my ($least, $most) = map { $_->{fields} } $redis->entries($dest);
	is_deeply($least, \@always, "$heading: what is always there");
	is_exactly_once($most, [ @own, @$fields ], '... and what may be there, and headers');
	return;
}

$node->sql(q{SELECT outbox_set_destination('events', format => 'cloudevents')});
is_as_described([ 'a', 'b' ], '### Fields', 'entries', '{"a": 1, "b": true}');
is_as_described([ 'X-Header', 'ce_subject' ], '### CloudEvents', 'events', '{"subject": "s", "X-Header": 1, "type": "t", "datacontenttype": "d"}');

my @signatures = map { $_->[1] =~ s/\s+/ /gr =~ s/ $//r } grep { $_->[0] eq 'text' } blocks($reference);
my %exists = map { $_ => 1 } split /\n/, $node->sql(q{SELECT DISTINCT proname FROM pg_proc WHERE proname ~ '^outbox_'});
is_exactly_once([ map { /^(\w+)/ } @signatures ], [ sort keys %exists ], 'each function is described');
my %listed = map { $_ => 1 } map { /\[`(outbox_\w+)`\]/g } section($reference, '## Functions') =~ /^\| \[.*/mg;
is_deeply(\%listed, \%exists, '... and listed');

foreach my $signature (@signatures)
{
	my ($name) = $signature =~ /^(\w+)\(/;
	my $wanted = $node->sql(qq{SELECT proname || '(' || pg_get_function_arguments(oid) || ')' || coalesce(' → ' || pg_get_function_result(oid), '')
		FROM pg_proc WHERE proname = '$name'});

	# Of functions with several types for one argument, the page names none.
	$wanted =~ s/::\w+(?:\[\]| with time zone)?//g;
	$wanted =~ s/timestamp with time zone/timestamptz/g;
	$wanted =~ s/(?:, )?\bOUT [^,\n]+?(?=,|\) →)//g;
	$wanted =~ s/\bIN (?=\w)//g;
	$wanted =~ s/'00:00:30'/'30 s'/;
	$wanted =~ s/\bbody \w+/body/;
	$wanted =~ s/\b(message_id|bodies) anycompatible(?:array)?/$1/;
	ok("\n$wanted\n" =~ /\n\Q$signature\E\n/, "arguments and result: $name") or diag "$signature\n$wanted";
}

#
# SQLSTATEs
#
my $errcodes = PostgreSQL::Test::Utils::slurp_file(qx($ENV{PG_CONFIG} --includedir-server) =~ s/\n//r . '/utils/errcodes.h');
my %sqlstate = map { $_->[0] => $_->[1] =~ s/\W//gr } map { [ /(\w+) MAKE_SQLSTATE\((.*)\)/ ] } $errcodes =~ /^#define (ERRCODE_\w+ MAKE_SQLSTATE\(.*\))/mg;
my %raised = map { $sqlstate{$_} => 1 } map { PostgreSQL::Test::Utils::slurp_file($_) =~ /(?:errcode\(|refuse_table\(table, |store_failure_set\(failure, )(ERRCODE_\w+)/g }
  split /\n/, qx(find "$root/src" -name '*.c');
my $sqlstates = section($reference, '## SQLSTATEs');
is_deeply([ grep { $sqlstates !~ /^\| [^|]*\b$_\b/m } sort keys %raised ], [], 'each SQLSTATE that a session raises is in the list');

#
# Settings
#
my $settings = section($reference, '## Settings');
my @settings = $settings =~ /^\| `(outbox\.\w+)` \|/mg;
is_exactly_once(\@settings,
	[ split /\n/, $node->sql(q{SELECT name FROM pg_settings WHERE name LIKE 'outbox.%'}) ],
	'each setting is in the list');
my %default = $settings =~ /^\| `(outbox\.\w+)` \| (`.*?`|) *\|/mg;
foreach my $name (@settings)
{
	my $default = $default{$name} =~ s/`//gr;

	# This one cannot be set in a session, and is not set here.
	if ($name eq 'outbox.filter_memory')
	{
		is($node->sql("SHOW $name"), $default =~ s/ //r, "the default of $name is '$default'");
		next;
	}
	is($node->sql("SET $name = '$default'; SELECT setting = boot_val FROM pg_settings WHERE name = '$name'"),
		't', "the default of $name is '$default'");
}
is($node->sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'outbox.%' AND context = 'user'}),
	join(' ', sort @settings[ -3 .. -1 ]), 'any user may set the last three');
my %in_seconds = map { $_ => 1 } $settings =~ /without a unit is in seconds for (.*?),\s+in\s+milliseconds/s ? $1 =~ /`(outbox\.\w+)`/g : ();
is(join(' ', sort keys %in_seconds),
	$node->sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'outbox.%' AND unit = 's'}),
	'these are in seconds, if nothing else is said');

#
# Views
#
my $views = section($reference, '## Views');
my @views = $views =~ /^\| \[`outbox\.(\w+)`\]/mg;
is_exactly_once(\@views,
	[ split /\n/, $node->sql(q{SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v'}) ],
	'each view is in the list');
foreach my $view (@views)
{
	my @columns = map { /`(\w+)`/g } section($reference, "### outbox.$view") =~ /^\| (`\w+`(?:, `\w+`)*) \|/mg;
	is_exactly_once(\@columns,
		[ split /\n/, $node->sql("SELECT attname FROM pg_attribute WHERE attrelid = 'outbox.$view'::regclass AND attnum > 0") ],
		"so are the columns of outbox.$view");
}

#
# Permissions of users of Redis: the dispatcher, and a deduplication store
#
$redis->command(split / /, $_) foreach "$reference\n$operations" =~ /^(ACL SETUSER .*)$/mg;
$node->set('outbox.redis_url' => $redis->tcp_url('outbox:password@'));
$node->sql(qq{SELECT outbox_create_endpoint('rights', dedup_store => '} . $redis->tcp_url('store:password@') . q{/1')});
$node->sql(q{BEGIN; SELECT outbox_begin('msg-1', 'rights'), outbox_enqueue('user-events', 'x'), outbox_commit(); COMMIT});
eventually { $redis->cli('-n', 1, 'KEYS', 'outbox:dedup:*') =~ /^outbox:dedup:/m } 'rights suffice for the store';
is($redis->count('user-events'), 1, '... and for the dispatcher');
$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM outbox.problems') or diag $node->sql('TABLE outbox.problems');
ok($node->poll_query_until('postgres', q{SELECT outbox_forget('msg-1', 'rights')}), '... and for the store to forget');

# For administrators: each problem that there can be, in order, and the SQL of the page,
# except for removing the extension.
my @problems = PostgreSQL::Test::Utils::slurp_file("$root/src/problem.h") =~ /P\(\w+, ("[^"]+", "\w+")\)/g;
is_deeply([ map { s/"(.*)", "(.*)"/`$1` | $2/r } @problems ], [ section($operations, '## Problems') =~ /^\| (`[^`]+` \| (?:critical|warning)) \|/mg ],
	'each kind of problem is explained');

# What the outbox says in a view, in the server log or to a caller is on one of these
# pages: three words at its beginning, behind names and numbers, or the next three.
sub messages
{
	my ($file) = @_;
	my $code = PostgreSQL::Test::Utils::slurp_file($file) =~ s/"\n\s*"//gr;
	my $literal = qr/"((?:[^"\\]|\\.)*)"/;
	my $says = qr/errmsg\(|errmsg_plural\(|elog\(ERROR,|(?:problem_set|redis_link_fail(?:_with_reply)?|\bfail|store_failure_set|resume_from_oldest)\([^"()]*,/;
	my @texts = $code =~ /(?:$says|PROBLEM_NO_DISPATCHER,|sizeof\(store->problem\),)\s*$literal/g;
	push @texts, grep { /.{30}/ } $code =~ /$literal/g if $file =~ /problem_view\.c$/;
	push @texts, $code =~ /RAISE EXCEPTION '([^']+)'/g;
	return map { (grep { / / } map { s/^\s+|\s+$//gr } split /\\"|%[.*\w]+|[.:;,(]/, s/^outbox: //r)[0] // () } @texts;
}

sub is_on_a_page
{
	my @words = split / /, shift;
	my $pages = "$reference\n$operations" =~ s/[`*]//gr =~ s/\s+/ /gr;
	return grep { $pages =~ /\Q$_\E/i } map { join ' ', grep { defined } @words[ $_ .. $_ + 2 ] } 0, 1;
}

my @messages = map { messages($_) } "$root/outbox--1.0.sql", split /\n/, qx(find "$root/src" "$root/bgworker" -name '*.c');
cmp_ok(scalar @messages, '>', 200, 'the messages are found in the source');
is_deeply([ grep { !is_on_a_page($_) } @messages ], [], '... and on a page for administrators');

my $removal = section($operations, '## Removal');
type_into_psql($node, $_->[1]) foreach grep { $_->[0] eq 'sql' } blocks($operations =~ s/\Q$removal\E//r);

# Roles, and removing the extension.
$node->sql('CREATE ROLE shop; CREATE ROLE prometheus; CREATE ROLE operator; CREATE ROLE shard');
follow($reference, '## Roles');
follow($operations, '## Removal');
is($node->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox'}), 0, 'nothing is left');

done_testing();
