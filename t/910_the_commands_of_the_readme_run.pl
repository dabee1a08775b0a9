# What README.md tells the reader to type works as written: its quick start, in
# psql and redis-cli, returns what it says. Its lists of functions, settings and
# views are those of the extension.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use Page;
use Redis;
use Test::More;
use Text::ParseWords;

my $readme = read_page(dirname(__FILE__) . '/../README.md');
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis, extension => 0);

#
# Install
#
like(section($readme, '## Install'), qr/^shared_preload_libraries = 'outbox'$/m, 'the library is to be preloaded');
my @install = grep { $_->[0] eq 'sql' } blocks(section($readme, '## Install'));
is(scalar @install, 1, 'there is one piece of SQL to install with');
type_into_psql($node, $install[0][1]);
$node->poll_query_until('postgres', q{SELECT redis_state = 'up' FROM outbox.status});

#
# Quick start
#
my @steps = blocks(section($readme, '## Quick start'));
my ($answer, $consumed);
like($steps[0][1], qr/^SELECT \* FROM outbox\.status/, 'it begins with a look at the status');
is_deeply([ grep { /^problem/ } @{ type_into_psql($node, $steps[0][1]) } ], ['problem|'], '... which has no problem');

foreach my $step (@steps[ 1 .. $#steps ])
{
	my ($language, $text) = @$step;

	if ($language eq 'sql') { type_into_psql($node, $text); }
	elsif ($language eq '') { is_as_shown($text, $answer); }
	foreach my $command ($language eq 'sh' ? split /\n/, $text : ())
	{
		my ($program, @words) = shellwords($command);

		$node->wait_until_sent;
		is_deeply([ map { [ $_->{body}, $_->{cause} // '', $_->{headers} ] } $redis->entries('user-events') ],
			[
				[ '{"type": "UserCreated", "user": 1}', 'msg-17', {} ],
				[ 'second try', 'msg-18', { trace => '4711' } ],
				[ 'hello', '', {} ]
			],
			'the stream holds what was committed') if $words[0] eq 'DEL';
		is($program, 'redis-cli', "a command for redis-cli: $command");
		$answer = $redis->cli(@words);
		unlike($answer, qr/^[A-Z]{2,} (?!\d)/, '... it takes it');
		$consumed = $answer if $words[0] eq 'XREADGROUP';
	}
}
is(scalar(() = $consumed =~ /^body$/mg), 3, 'the consumer group read it');
is($redis->count('user-events'), 0, 'all is cleaned up');

#
# Functions
#
type_into_psql($node, $_->[1])
  foreach map { blocks(section($readme, $_)) } '#### One statement for a whole handler', '#### Many messages';
$node->wait_until_sent;
is_deeply([ map { $_->{cause} } $redis->entries('placed') ], ['msg-21'], 'one statement was a handler');
is($redis->count('mails'), 1004, 'many messages were sent');
my %exists = map { $_ => 1 } split /\n/, $node->sql(q{SELECT DISTINCT proname FROM pg_proc WHERE proname ~ '^outbox_'});
my %named = map { $_ => 1 } section($readme, '## Functions') =~ /^\| `(outbox_\w+)\(/mg;
is_deeply(\%named, \%exists, 'each function is in the list, and no other');
my %mentioned = map { $_ => 1 } $readme =~ /\b(outbox_\w+)(?=[(`])/g;
delete $mentioned{outbox_record_claimed};
is_deeply([ grep { !$exists{$_} } sort keys %mentioned ], [], 'no function is mentioned that there is not');

foreach my $line (section($readme, '## Functions') =~ /^\| `(outbox_\w+\(.*?\)) /mg)
{
	my ($name, $arguments) = $line =~ /^(\w+)\((.*)\)$/;
	my $wanted = $node->sql(qq{SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = '$name'});

	# Of functions with several types for one argument, README.md names none.
	$wanted =~ s/::\w+(?:\[\]| with time zone)?//g;
	$wanted =~ s/timestamp with time zone/timestamptz/g;
	$wanted =~ s/(?:, )?\bOUT [^,\n]+//g;
	$wanted =~ s/'00:00:30'/'30 s'/;
	$wanted =~ s/\bbody \w+/body/;
	$wanted =~ s/\b(message_id|bodies) anycompatible(?:array)?/$1/;
	ok("\n$wanted\n" =~ /\n\Q$arguments\E\n/, "arguments: $name") or diag "$arguments\n$wanted";
}

#
# Settings
#
my @settings = section($readme, '## Settings') =~ /^\| `(outbox\.\w+)` \|/mg;
is_exactly_once(\@settings,
	[ split /\n/, $node->sql(q{SELECT name FROM pg_settings WHERE name LIKE 'outbox.%'}) ],
	'each setting is in the list');
my %default = section($readme, '## Settings') =~ /^\| `(outbox\.\w+)` \| (`.*?`|) *\|/mg;
foreach my $name (@settings)
{
	my $default = $default{$name} =~ s/`//gr;

	# This one cannot be set in a session. Nobody has set it here.
	if ($name eq 'outbox.filter_memory')
	{
		is($node->sql("SHOW $name"), $default =~ s/ //r, "the default of $name is '$default'");
		next;
	}
	is($node->sql("SET $name = '$default'; SELECT setting = boot_val FROM pg_settings WHERE name = '$name'"),
		't', "the default of $name is '$default'");
}
is($node->sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'outbox.%' AND context = 'user'}),
	join(' ', sort @settings[ -2, -1 ]), 'any user may set the last two');

#
# Views
#
my $monitoring = section($readme, '## Monitoring');
my @views = $monitoring =~ /^\| `outbox\.(\w+)` \|/mg;
is_exactly_once(\@views,
	[ split /\n/, $node->sql(q{SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v'}) ],
	'each view is in the list');
my @columns = map { /`(\w+)`/g } $monitoring =~ /^\| (`\w+`(?:, `\w+`)*) \|/mg;
is(join(' ', @columns),
	$node->sql(q{SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'outbox.status'::regclass}),
	'so are the columns of outbox.status');
type_into_psql($node, $_->[1]) foreach grep { $_->[0] eq 'sql' } blocks($monitoring);

# Roles, and the way out.
$node->sql('CREATE ROLE shop; CREATE ROLE prometheus; CREATE ROLE operator; CREATE ROLE shard');
type_into_psql($node, $_->[1]) foreach grep { $_->[0] eq 'sql' } blocks(section($readme, '### Roles')), blocks(section($readme, '## Uninstall'));
is($node->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox'}), 0, 'nothing is left');

done_testing();
