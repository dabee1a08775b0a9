# What the pages of the documentation name exists: tests and other files,
# functions, settings, views, and what their links lead to.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use Page;
use Test::More;

my $root = dirname(__FILE__) . '/..';
my @names = map { s{^\Q$root\E/}{}r } "$root/README.md", glob("$root/docs/*.md $root/model/*.md $root/examples/*/*.md");
my %page = map { $_ => read_page("$root/$_") } @names;
my $node = Outbox->create('main');

my %function = map { $_ => 1 } 'outbox_record_claimed', split /\n/, $node->sql(q{SELECT DISTINCT proname FROM pg_proc WHERE proname ~ '^outbox_'});
my %object = map { $_ => 1 } split /\n/, $node->sql(<<'END');
SELECT name FROM pg_settings WHERE name LIKE 'outbox.%'
UNION SELECT 'outbox.' || relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace
UNION SELECT 'outbox.' || proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace
UNION SELECT 'outbox.' || relname || '.' || attname FROM pg_class c JOIN pg_attribute ON attrelid = c.oid WHERE relnamespace = 'outbox'::regnamespace
END

# Files of the build are no objects of a database, nor are those in the data
# directory, which the code names.
my $no_object = qr/^outbox\.(c|h|o|so|control|conf)$/;
my %file = map { $_ => 1 } map { read_page($_) =~ m{["/](outbox\.\w+)"}g } glob "$root/src/*.c $root/src/*/*.c $root/bgworker/*.c $root/bgworker/*/*.c";

# The headings of a page, as links name them.
sub anchors
{
	my ($text) = @_;
	return map { lc =~ s/[^\w\s-]//gr =~ s/\s/-/gr } $text =~ /^#+ (.*?)\s*$/mg;
}

# Files that a page names: `t/….pl`, and `t/117_…` or `t/117` for short.
sub files
{
	my ($text) = @_;
	return map { s{…$}{*}r =~ s{^t/\d+$}{$&_*}r } $text =~ m{`((?:t|sql|specs|model|bench|examples|src|bgworker|docs)/[\w./-]+(?:…|\b))`}g;
}

foreach my $name (@names)
{
	my $text = $page{$name};
	my $folder = dirname($name) eq '.' ? '' : dirname($name) . '/';

	is_deeply([ grep { !$function{$_} } $text =~ /\b(outbox_[a-z_]+)(?=[(`])/g ], [], "$name names no function that there is not");
	is_deeply([ grep { !$object{$_} && !$file{$_} && $_ !~ $no_object } $text =~ /`(outbox\.[a-z_]+(?:\.[a-z_]+)?)/g ], [], '... no setting, view, table or column');
	is_deeply([ grep { !-e ((glob "$root/$_")[0] // '') && !-e "$root/$folder$_" } files($text) ], [], '... and no file');

	foreach my $link ($text =~ /\]\((?!https?:)([^)\s]+)\)/g)
	{
		my ($file, $anchor) = split /#/, $link;
		my $target = $file ne '' ? "$root/$folder$file" : "$root/$name";
		my $exists = -e $target;
		my %anchor = map { $_ => 1 } defined $anchor && $exists ? anchors(read_page($target)) : ();
		ok($exists && (!defined $anchor || $anchor{$anchor}), "... it links to what is there: $link");
	}
}

done_testing();
