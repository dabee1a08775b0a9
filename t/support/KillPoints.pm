# A server whose library has kill points (see src/kill_point.h), and walks that
# let a process die at each of them.

package KillPoints;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Fcntl ':flock';
use File::Basename;
use IPC::Run;
use Outbox;
use PostgreSQL::Test::Utils ();
use Test::More;

our @EXPORT = qw(arm fired create_with_kill_points kill_points revive);

my $source = dirname(__FILE__) . '/../..';
my $armed_at;    # a place in the log

# The points in the C files of folders, as the source has them.
sub kill_points
{
	my (@folders) = @_;
	my @points;

	foreach my $file (sort map { glob "$source/$_/*.c $source/$_/*/*.c" } @folders)
	{
		my $code = PostgreSQL::Test::Utils::slurp_file($file);
		while ($code =~ /\bKILL_POINT(\w*)\((?:kind, )?(?:"(\w+)")?/g)
		{
			my ($of, $name) = ($1, $2);
			die "a kill point in $file has no name" unless defined $name;
			push @points, map { $_ . $name } $of eq '' ? '' : ('log_', 'record_', $of eq '_OF_RING' ? 'history_' : ());
		}
	}
	my %times;
	$times{$_}++ and die "two kill points are called $_" foreach @points;
	return @points;
}

# Like Outbox->create, with a library that has the points.
sub create_with_kill_points
{
	my ($name, %option) = @_;
	return Outbox->create($name, %option, install_path => installation(),
		conf => "restart_after_crash = on\n" . ($option{conf} // ''));
}

# A second private installation beside the one of make test, with the library
# built anew; made by the first test that asks for it.
sub installation
{
	my $folder = "$ENV{TESTDIR}/kill_points";
	my %directory = map { $_ => qx($ENV{PG_CONFIG} --$_) } qw(bindir pkglibdir sharedir);

	chomp %directory;
	open my $lock, '>', "$folder.lock" or die "could not open $folder.lock: $!";
	flock $lock, LOCK_EX or die "could not lock $folder.lock: $!";
	unless (-e "$folder.ready")
	{
		run_command('mkdir', '-p', map { "$folder$_" } values %directory);
		run_command('cp', '-RPl', "$_/.", "$folder$_") foreach values %directory;

		# Only what includes kill_point.h is another in this library. That the rest is for it as
		# well is told to make, which would build all of it again.
		run_command('cp', '-Rp', $source, "$folder/source");
		my $built_for = "$folder/source/src/built_for";
		my ($version) = PostgreSQL::Test::Utils::slurp_file($built_for) =~ /(.*)/;
		PostgreSQL::Test::Utils::append_to_file("$built_for.new", "$version with kill points\n");
		rename "$built_for.new", $built_for and utime 0, 0, $built_for or die "could not replace $built_for: $!";
		foreach my $file (map { glob "$folder/source/$_.c" } 'src/*', 'src/*/*', 'bgworker/*', 'bgworker/*/*')
		{
			unlink $file =~ s/c$/o/r if PostgreSQL::Test::Utils::slurp_file($file) =~ /kill_point\.h/;
		}
		unlink "$folder/source/outbox.so";
		run_command('make', '-s', '-j2', '-C', "$folder/source", 'outbox.so', 'KILL_POINTS=1',
			'COPT=-Werror', 'with_llvm=no', "PG_CONFIG=$ENV{PG_CONFIG}");

		# Not written over: the other installation has the same file.
		unlink "$folder$directory{pkglibdir}/outbox.so";
		run_command('cp', "$folder/source/outbox.so", "$folder$directory{pkglibdir}");
		PostgreSQL::Test::Utils::append_to_file("$folder.ready", '');
	}
	return dirname("$folder$directory{bindir}");
}

sub run_command
{
	my (@command) = @_;
	my $output = '';

	IPC::Run::run(\@command, '<', \undef, '>&', \$output) or die "@command failed: $output";
	return;
}

# The process that passes the point next, or for the nth time, dies in this manner: end,
# kill or server.
sub arm
{
	my ($node, $point, $manner, $pass) = @_;
	my $file = $node->data_dir . '/outbox_kill_point';

	unlink "$file.fired";
	PostgreSQL::Test::Utils::append_to_file("$file.new", "$point $manner " . ($pass // 1) . "\n");
	$armed_at = $node->log_position;
	rename "$file.new", $file or die "could not rename $file.new: $!";
	return;
}

# Check whether a process did.
sub fired
{
	my ($node) = @_;
	return -e $node->data_dir . '/outbox_kill_point.fired';
}

# Waits until the server has restarted after a death in that manner.
sub revive
{
	my ($node, $manner) = @_;

	return 1 if $manner eq 'end';
	if ($manner eq 'server')
	{
		wait_until { !-e $node->data_dir . '/postmaster.pid' } or return 0;
		$node->start_after_kill or return 0;
	}
	return wait_until { $node->log_since($armed_at) =~ /ready to accept connections/ };
}

1;
