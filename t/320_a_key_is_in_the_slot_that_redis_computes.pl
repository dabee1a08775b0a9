# The hash slot of a key is the one that Redis computes, whatever braces and bytes its name
# has, and each slot has a tag that brings a key into it.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

my $source = dirname(__FILE__) . '/..';
my $program = PostgreSQL::Test::Utils::tempdir_short() . '/slots';
my $redis = Redis->new(tcp => 1, config => [ '--cluster-enabled', 'yes', '--cluster-port', PostgreSQL::Test::Cluster::get_free_port() ]);
my ($include) = run_command([ $ENV{PG_CONFIG} // 'pg_config', '--includedir-server' ]);

system_or_bail(
	'cc', '-Wall', '-Werror', "-I$source", "-I$include", '-o', $program,
	"$source/t/support/slots.c", "$source/src/redis_cluster/hash_slot.c", "$source/src/crc16.c");

my @names = (
	'123456789', 'a', 'user-events', '{a}', '{a}:fence', 'x{a}y', '{}', '{}a', 'a{}{b}', '{a', 'a}', '}a{b}', '{a}{b}', '{{a}}', 'x{{a}}y',
	"gr\xc3\xbc\xc3\x9fe", "{gr\xc3\xbc\xc3\x9fe}:1", "\xe6\xb3\xa8\xe6\x96\x87", "\xff\xfe\x01", 'two words', "line\nend", 'x' x 1000, map { "events:$_" } 0 .. 40);
my ($output) = run_command([ $program, '', @names ]);
my @slots = split /\n/, $output;
my @tags = splice @slots, 0, 16384;

is(shift @slots, 0, 'a key without a name is in the first slot');
is_deeply(\@slots, [ map { $redis->command('CLUSTER', 'KEYSLOT', $_) } @names ], 'a key is in the slot that Redis computes');

my @wrong = grep { $redis->command('CLUSTER', 'KEYSLOT', "outbox:fence:{$tags[$_]}") != $_ } map { $_ * 97 % 16384 } 0 .. 168;
is_deeply(\@wrong, [], 'a tag brings a key into its slot');
ok(!(grep { !/^[0-9a-z]{1,4}$/ } @tags), 'a tag has up to four letters and digits');
is(scalar(keys %{ { map { $_ => 1 } @tags } }), 16384, 'each slot has a tag of its own');

done_testing();
