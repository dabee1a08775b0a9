# An incremental backup: what pg_combinebackup makes of it and of those before it has all
# records and all that was pending, though segments were filled, compacted and emptied in
# between. PostgreSQL has these backups from 17 on.

use strict;
use warnings FATAL => 'all';

use Compaction;
use Outbox;
use PostgreSQL::Test::Utils;
use Redis;
use Test::More;

plan skip_all => 'this PostgreSQL has no incremental backups' if check_pg_config('#define PG_MAJORVERSION_NUM 1[56]\b');

my $redis = Redis->new;
my $node = Outbox->create(
	'main',
	redis => $redis,
	init => { allows_streaming => 1 },
	conf => "$Compaction::small_segments\nsummarize_wal = on\noutbox.replay_window = '0s'\noutbox.takeover_delay = '0s'");

sub back_up_since
{
	my ($name, $before) = @_;
	return $node->backup($name, backup_options => [ '--incremental', $node->backup_dir . "/$before/backup_manifest" ]);
}

# The files of the tables of a ring: one that was emptied has another.
sub files
{
	my ($ring) = @_;
	return split /\n/, $node->sql("SELECT pg_relation_filenode(('outbox.${ring}_' || segment)::regclass) FROM outbox.ring WHERE ring = '$ring' ORDER BY segment");
}

prepare($node);
$node->handle('first');
eventually { $redis->sequence('d') eq 'first' } 'a message arrives';
$node->backup('full');
my @before = files('record');

compact($node);
$node->handle('second');
eventually { $redis->sequence('d') eq 'first second' } '... and another one';
back_up_since('monday', 'full');

compact($node);
$node->sql('SELECT outbox_pause()');
$node->handle('pending');
my $claimed = claimed($node);
my @after = files('record');
cmp_ok(scalar(grep { $before[$_] != $after[$_] } 0 .. $#after), '>=', 6, 'segments were emptied meanwhile');
cmp_ok(scalar(compacted_segments($node)), '>=', 2, '... and compacted');
back_up_since('tuesday', 'monday');

# What comes behind the backup is lost, but not in Redis.
$node->sql('SELECT outbox_resume()');
$node->handle('lost');
eventually { $redis->sequence('d') eq 'first second pending lost' } 'more is sent';
$node->stop('fast');

my $restored = Outbox->new('restored');
$restored->init_from_backup($node, 'tuesday', combine_with_prior => [ 'full', 'monday' ]);
$restored->start;
is(claimed($restored), $claimed, 'all three are one database');
is(unknown($restored, 1, $claimed), 0, '... that knows all ids');
ok(!is_new($restored, $_), "... such as $_") foreach qw(first second pending);
ok(is_new($restored, 'lost'), '... but what came later');
$restored->sql('SELECT outbox_resume()');
eventually { $redis->sequence('d') eq 'first second pending lost pending' } 'what was pending is sent, and nothing else';
$restored->handle('new');
eventually { $redis->sequence('d') eq 'first second pending lost pending new' } '... and then what is new';

done_testing();
