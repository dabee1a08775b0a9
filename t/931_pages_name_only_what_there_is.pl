# The names in the pages of the documentation exist: files, functions of SQL and of C,
# settings, views, tables and columns, targets of make, and the targets of links. So do the
# functions and files of C that the comments of the models name. A page and a model with
# invented names show that each kind is checked.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use Outbox;
use Page;
use PostgreSQL::Test::Utils ();
use Test::More;

my $root = dirname(__FILE__) . '/..';
my @pages = map { s{^\Q$root\E/}{}r } glob "$root/*.md $root/docs/*.md $root/model/*.md $root/examples/*/*.md";
my $node = Outbox->create('main');

# The message of 23505 names the first one, which is no function.
my %function = map { $_ => 1 } 'outbox_record_claimed', split /\n/, $node->sql('SELECT DISTINCT proname FROM pg_proc');
my %object = map { $_ => 1 } split /\n/, $node->sql(<<'END');
SELECT name FROM pg_settings WHERE name LIKE 'outbox.%'
UNION SELECT 'outbox.' || relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace
UNION SELECT 'outbox.' || proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace
UNION SELECT 'outbox.' || relname || '.' || attname FROM pg_class c JOIN pg_attribute ON attrelid = c.oid WHERE relnamespace = 'outbox'::regnamespace
END

# Files of the build are no objects of a database, nor are those in the data
# directory, which the code names.
my @sources = split /\n/, qx(find "$root/src" "$root/bgworker" -name '*.[ch]');
my %source = map { basename($_) => read_page($_) } @sources;
my $code = join '', values %source;
my $no_object = qr/^outbox\.(c|h|o|so|control|conf)$/;
my %in_data_directory = map { $_ => 1 } $code =~ m{["/](outbox\.\w+)"}g;
my %file_name = map { basename($_) => 1 } @sources, split /\n/, qx(find "$root/t" "$root/dev" "$root/model" "$root/bgworker" -type f);
my %target = map { $_ => 1 } qw(all install uninstall installcheck clean), read_page("$root/Makefile") =~ /^([\w-]+):(?!=)/mg;

# The anchors of the headings of a page.
sub anchors
{
	my ($text) = @_;
	return map { lc =~ s/[^\w\s-]//gr =~ s/\s/-/gr } $text =~ /^#+ (.*?)\s*$/mg;
}

# Check whether the target of a link exists.
sub leads_somewhere
{
	my ($folder, $text, $link) = @_;
	my ($file, $anchor) = split /#/, $link;
	return 0 if $file ne '' && !-e "$folder/$file";
	return 1 unless defined $anchor;
	my %anchor = map { $_ => 1 } anchors($file eq '' ? $text : read_page("$folder/$file"));
	return $anchor{$anchor};
}

# Check whether a file that a page names exists: `t/….pl`, and `t/117_…` or `t/117` for short.
sub file_exists
{
	my ($folder, $path) = @_;
	my $pattern = $path =~ s{…$}{*}r =~ s{^t/\d+$}{$&_*}r;
	return -e ((glob "$root/$pattern")[0] // '') || -e "$folder/$path";
}

# Check whether a function is called anywhere in the code.
sub is_known { my ($name) = @_; return $function{$name} || $code =~ /\b$name\(/; }

# Returns the functions that a page says are in a file, as in "ring.c `rings_read()`, `ring_look()`", and are not there.
sub misplaced
{
	my ($text) = @_;
	my @misplaced;
	while ($text =~ /\b(\w+\.c)((?:(?:,| and)? `\w+\(\)`)+)/g)
	{
		my ($file, $functions) = ($1, $2);
		push @misplaced, map { "$file $_()" } grep { ($source{$file} // '') !~ /^$_\(/m } $functions =~ /(\w+)\(/g;
	}
	return @misplaced;
}

# Returns the files of C that the table of folders in a page lacks, and what it has that does not exist.
sub misfiled
{
	my ($text) = @_;
	my %listed;
	while ($text =~ m{^\| `((?:src|bgworker)/(?:\w+/)?)` \|.*\| (.*) \|$}mg)
	{
		my ($folder, $files) = ($1, $2);
		$listed{"$folder$_"} = 1 foreach split /[,;] /, $files;
	}
	my @lacking = grep { !$listed{s/\.c$//r} } map { s{^\Q$root\E/}{}r } grep { /\.c$/ } @sources;
	return (sort(@lacking), sort grep { !-e "$root/$_" && !-e "$root/$_.c" && !-e "$root/$_.h" } keys %listed);
}

# Returns the functions and files that the comments of a model name and that do not exist.
sub invented_in_model
{
	my ($model) = @_;
	my $comments = join ' ', $model =~ m{/\*(.*?)\*/}gs;
	return ((map { "$_()" } grep { !is_known($_) } $comments =~ /\b(\w+)\(\)/g), grep { !$file_name{$_} } $comments =~ /\b(\w+\.(?:c|lua))\b/g);
}

# Returns the names in a page of a folder that do not exist.
sub invented
{
	my ($folder, $text) = @_;
	my @invented;

	push @invented, grep { !$function{$_} } $text =~ /\b(outbox_[a-z_]+)(?=[(`])/g;
	push @invented, map { "$_()" } grep { !is_known($_) } $text =~ /`(?:outbox\.)?([a-z_0-9]+)\(\)/g;
	push @invented, grep { !$object{$_} && !$in_data_directory{$_} && $_ !~ $no_object } $text =~ /`(outbox\.[a-z_]+(?:\.[a-z_]+)?)/g;
	push @invented, grep { !file_exists($folder, $_) } $text =~ m{`((?:t|sql|specs|model|bench|examples|src|bgworker|docs|dev)/[\w./-]+(?:…|\b))`}g;
	push @invented, grep { !$file_name{$_} } $text =~ /`(\w+\.(?:c|h|lua|pl|pm|pml))`/g;
	push @invented, map { "make $_" } grep { !$target{$_} } map { /^make ([a-z][a-z-]*)/ } $text =~ /`([^`\n]+)`/g, map { split /\n/, $_->[1] } blocks($text);
	push @invented, misplaced($text);
	push @invented, grep { !leads_somewhere($folder, $text, $_) } $text =~ /\]\((?!https?:)([^)\s]+)\)/g;
	return @invented;
}

is_deeply([ invented("$root/docs", <<'END') ],
`outbox_levitate(…)` and `outbox_begin`, `float_freely()` and `claim_message()`, `outbox.gravity` and `outbox.status.problem`, `src/anvil.c`, `t/117_…`,
`anvil.c`, `make tea`, anvil.c `claim_message()`, claim.c `claim_message()`, `rings_read()`, [here](#nowhere), [there](reference.md#thin-air), [away](away.md), [up](../README.md#install)
END
	[ qw(outbox_levitate float_freely() outbox.gravity src/anvil.c anvil.c), 'make tea', 'anvil.c claim_message()', 'claim.c rings_read()', '#nowhere', 'reference.md#thin-air', 'away.md' ],
	'invented names are noticed');
foreach my $page (@pages)
{
	is_deeply([ invented("$root/" . dirname($page), read_page("$root/$page")) ], [], "$page names only what there is");
}

my $internals = read_page("$root/docs/internals.md");
is_deeply([ misfiled($internals =~ s/store, store_kind,/anvil,/r) ], [ 'src/store/store.c', 'src/store/anvil' ], 'a file that the table of folders lacks is noticed');
is_deeply([ misfiled($internals) ], [], 'the table of folders has each file of C where it is');

is_deeply([ invented_in_model("/* float_freely() and claim_message(): anvil.c, claim.c */ inline levitate()") ], [ qw(float_freely() anvil.c) ], '... and in a model');
is_deeply([ invented_in_model(read_page($_)) ], [], basename($_) . ' names only what there is') foreach glob "$root/model/*.pml";

done_testing();
