# The commands of README.md work as written: the quick start, in psql and redis-cli,
# returns what the page shows. The page is short.

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

# What is left to other pages (docs/reference.md has all functions, see t/912).
my %exists = map { $_ => 1 } 'outbox_record_claimed', split /\n/, $node->sql(q{SELECT DISTINCT proname FROM pg_proc WHERE proname ~ '^outbox_'});
is_deeply([ grep { !$exists{$_} } $readme =~ /\b(outbox_\w+)(?=[(`])/g ], [], 'no function is mentioned that there is not');
cmp_ok(scalar(() = $readme =~ /\n/g), '<=', 250, 'it can be read at once');

done_testing();
