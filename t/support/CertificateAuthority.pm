# A certificate authority, made with openssl in a temporary folder.

package CertificateAuthority;

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PostgreSQL::Test::Utils ();

sub new
{
	my ($class, $name) = @_;
	my $self = bless { name => $name, folder => PostgreSQL::Test::Utils::tempdir(), issued => 0 }, $class;

	openssl('req', '-x509', new_key($self->key), '-out', $self->ca, '-days', 30, '-subj', "/CN=$name");
	chmod 0600, $self->key;
	return $self;
}

# Its own certificate.
sub ca { return "$_[0]->{folder}/ca.crt"; }
sub key { return "$_[0]->{folder}/ca.key"; }

# Issues a certificate for names as in a subjectAltName, valid for so many days (0: it has
# expired). Returns what Redis->new takes as tls.
sub issue
{
	my ($self, $names, $days) = @_;
	my $base = "$self->{folder}/" . ++$self->{issued};

	openssl('req', new_key("$base.key"), '-out', "$base.csr", '-subj', "/CN=$self->{name} $self->{issued}");
	PostgreSQL::Test::Utils::append_to_file("$base.ext", "subjectAltName = $names\n");
	openssl('x509', '-req', '-in', "$base.csr", '-CA', $self->ca, '-CAkey', $self->key, '-set_serial', $self->{issued},
		'-extfile', "$base.ext", '-days', $days // 30, '-out', "$base.crt");
	chmod 0600, "$base.key";
	return { ca => $self->ca, cert => "$base.crt", key => "$base.key" };
}

sub new_key
{
	my ($file) = @_;
	return ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', $file);
}

sub openssl
{
	my (@words) = @_;
	my $output = '';

	IPC::Run::run([ 'openssl', @words ], '<', \undef, '>&', \$output) or die "openssl @words: $output";
	return;
}

1;
