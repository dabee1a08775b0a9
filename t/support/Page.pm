# A page of the documentation, whose commands a test types in.

package Page;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(read_page section blocks type_into_psql is_as_shown);

sub read_page
{
	my ($file) = @_;
	return PostgreSQL::Test::Utils::slurp_file($file);
}

# The text below a heading, up to the next heading of its level.
sub section
{
	my ($page, $heading) = @_;
	my ($level) = $heading =~ /^(#+)/;

	$page =~ /^\Q$heading\E\n(.*?)(?=^#{1,${\length $level}} |\z)/ms or die "there is no section \"$heading\"";
	return $1;
}

# The fenced blocks of a text, as [language, lines].
sub blocks
{
	my ($text) = @_;
	my @blocks;

	push @blocks, [ $1, $2 ] while $text =~ /^```(\w*)\n(.*?)^```$/msg;
	return @blocks;
}

# Runs a block with psql, and compares what each SELECT on a line of its own returns with
# the comment behind it, if there is one.
sub type_into_psql
{
	my ($node, $block) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out, $error) = $node->psql('postgres', $block, on_error_stop => 1);

	is($status, 0, 'psql takes: ' . (split /\n/, $block)[-1]) or diag $error;
	my @results = split /\n/, $out;
	return \@results if $block =~ /\\gx/;

	foreach my $line (grep { /^SELECT/ } split /\n/, $block)
	{
		my $result = shift @results;
		is($result, $1, "... and returns what is said: $line") if $line =~ /-- ([^:]+):/;
	}
	return \@results;
}

# Compares what a page says that redis-cli shows with what it does show, except for ids and times.
sub is_as_shown
{
	my ($shown, $answer) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @shown = map { s/\\"/"/gr } $shown =~ /"((?:[^"\\]|\\.)*)"/g;

	is(anonymous($answer), anonymous(join "\n", @shown), '... and shows what is said');
	return;
}

sub anonymous
{
	return shift =~ s/^[0-9a-f]{8}-[-0-9a-f]{27}$/an id/mgr =~ s/^\d{13}(-\d+)?$/a time/mgr;
}

1;
