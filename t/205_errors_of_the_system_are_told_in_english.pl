# Errors of the C library and of libpq are told in English, whatever the language and the
# encoding of the database: in most encodings nothing but question marks would be left of
# them in Russian.

use strict;
use warnings FATAL => 'all';

use Outbox;
use PostgreSQL::Test::Utils;
use Test::More;

# The languages of this machine are used as they are; the locale is made here.
my $words = '/usr/share/locale/ru/LC_MESSAGES/libc.mo';
my $locales = PostgreSQL::Test::Utils::tempdir();
plan skip_all => "there is no $words" unless -e $words;
foreach my $encoding ('KOI8-R', 'UTF-8')
{
	run_log([ 'localedef', '-i', 'ru_RU', '-f', $encoding, "$locales/ru_RU.$encoding" ])
	  or plan skip_all => 'localedef cannot make a Russian locale: apt-get install locales';
}
$ENV{LOCPATH} = $locales;

my $node = Outbox->create('main', extension => 0, conf => "outbox.connect_timeout = '20s'");
my %database = (
	koi8 => "ENCODING 'KOI8R' LOCALE 'ru_RU.KOI8-R'",
	utf8 => "ENCODING 'UTF8' LOCALE 'ru_RU.UTF-8'",
	plain => "ENCODING 'UTF8' LOCALE 'C'");
my $missing = $node->basedir . '/missing';

# What a client is told, in whatever language.
sub error_of
{
	my ($sql, $database) = @_;
	my (undef, undef, $error) = $node->psql($database, $sql);
	return $error;
}

foreach my $database (sort keys %database)
{
	my $encoding = $database eq 'koi8' ? 'KOI8-R' : 'UTF-8';
	my $says = sub
	{
		my ($regex, $name) = @_;
		eventually { $node->sql('SELECT redis_error FROM outbox.status', $database) =~ $regex } "$name, database $database"
		  or diag $node->sql('SELECT redis_error FROM outbox.status', $database);
	};
	my $set = sub { $node->sql("ALTER DATABASE $database SET $_[0] = '$_[1]'") };

	$node->sql("CREATE DATABASE $database TEMPLATE template0 $database{$database}");
	$set->('lc_messages', "ru_RU.$encoding");
	unlike(error_of("SELECT pg_ls_dir('$missing')", $database), qr/^$|No such file/, "the C library speaks Russian in database $database");
	$set->('outbox.redis_url', "unix://$missing");
	$node->sql('CREATE EXTENSION outbox', $database);
	$says->(qr/could not connect: No such file or directory/, 'a socket that is missing');
	$set->('outbox.redis_url', 'redis://nowhere.invalid');
	$says->(qr/could not look up the host: (Name or service not known|Temporary failure in name resolution|No address associated)/, 'a host that does not exist');
	$set->('outbox.redis_url', 'redis://127.0.0.1:1');
	$says->(qr/could not connect: Connection refused/, 'a port that nobody listens on');
	like(error_of(q{SELECT outbox_send('d', 'x')}, $database), qr/could not connect: Connection refused/, '... also to a caller');
	$set->('outbox.redis_password_file', $missing);
	$says->(qr/could not open the file of outbox.redis_password_file: No such file or directory/, 'a file of a password that is missing');

	# libpq connects to a store.
	$node->sql("SELECT outbox_create_endpoint('s', dedup_store => 'postgresql://u\@127.0.0.1:1/d')", $database);
	like(error_of(q{SELECT outbox_begin('m', 's')}, $database), qr/Connection refused/, "a store that is away, database $database");
}

done_testing();
