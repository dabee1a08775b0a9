# What docs/drivers.md says about drivers is true of psycopg 3: its example runs as it is,
# and a body with the cast of its type arrives unchanged, whatever it contains. Those of
# SQLAlchemy, Alembic and Django run too, where these are installed.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use IPC::Run;
use Outbox;
use Page;
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;

my $python = python() or plan skip_all => 'no python3 with psycopg and redis';
my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $drivers = read_page(dirname(__FILE__) . '/../docs/drivers.md');
my @blocks = blocks($drivers);

type_into_psql($node, $_->[1]) foreach grep { $_->[0] eq 'sql' } @blocks;
my ($example) = map { $_->[1] } grep { $_->[0] eq 'python' && $_->[1] !~ /await|sqlalchemy|django/ } @blocks;
my ($enqueue) = $drivers =~ /^\| psycopg 3, psycopg2 \| `(.*?)`/m;
my $program = PostgreSQL::Test::Utils::tempdir() . '/drivers.py';
PostgreSQL::Test::Utils::append_to_file($program, <<"END");
import json, sys, uuid
import psycopg
from psycopg.types.json import Jsonb
connection = psycopg.connect(sys.argv[1])
message_id, invoice = "incoming-1", {"invoice": 1}
$example
$example
body = {"path": "C:\\\\temp", "hex": "\\\\x41", "quote": "'\\"", "umlaut": "\\u00fc"}
text = json.dumps(body, ensure_ascii=False)
def sent(sql, *values):
    with connection.transaction(force_rollback=True):
        connection.execute(sql, values)
        return connection.execute("SELECT body FROM outbox_enqueued()").fetchone()[0]
def check(name, result, expected):
    print("ok" if result == expected else f"not ok: {result!r}", name)
check("JSON in a string", json.loads(sent("$enqueue", "d", text, '{"a": 1}')), body)
check("JSON as such", json.loads(sent("$enqueue", "d", Jsonb(body), Jsonb({"a": 1}))), body)
check("text", sent("SELECT outbox_enqueue(%s, %s::text)", "d", text), text.encode())
check("bytes", sent("SELECT outbox_enqueue(%s, %s::bytea)", "d", b"\\\\\\x00\\xff"), b"\\\\\\x00\\xff")
check("CAST", json.loads(sent("SELECT outbox_enqueue(%s, CAST(%s AS jsonb))", "d", text)), body)
check("a string as bytea is harmed", sent("SELECT outbox_enqueue(%s, %s::bytea)", "d", "\\\\x41"), b"A")
check("many", sent("SELECT outbox_enqueue_many(%s, %s::text[], %s::jsonb)", "d", [text], '[{"a": 1}]'), text.encode())
check("many without casts", sent("SELECT outbox_enqueue_many(%s, %s)", "d", [text]), text.encode())
check("uuid", sent("SELECT outbox_enqueue(%s, %s::text, message_id => %s)", "d", text, uuid.uuid4()), text.encode())
END
my ($output, $error) = ('', '');
my $succeeded = IPC::Run::run([ $python, $program, $node->connstr('postgres') ], '<', \undef, '>', \$output, '2>', \$error);

ok($succeeded, 'the program ends well') or diag $error;
is($output, join('', map { "ok $_\n" } 'JSON in a string', 'JSON as such', 'text', 'bytes', 'CAST', 'a string as bytea is harmed', 'many', 'many without casts', 'uuid'),
	'bodies arrive as they were');
$node->wait_until_sent;
is_deeply([ map { [ $_->{body}, $_->{cause} ] } $redis->entries('invoices') ], [ [ '{"invoice": 1}', 'incoming-1' ] ], 'the example has sent its message once');

# Frameworks: a message, and the same again.
my %set_up = (
	sqlalchemy => "import sqlalchemy.orm\nengine = sqlalchemy.create_engine('postgresql+psycopg2://', connect_args=part)\n",
	django => <<'END');
import django.conf, django.db.transaction
django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres",
    "HOST": part["host"], "PORT": part["port"]}})
END
foreach my $framework (sort keys %set_up)
{
  SKIP:
	{
		skip "no $framework", 2 unless IPC::Run::run([ $python, '-c', "import $framework, psycopg2" ], '>&', '/dev/null');
		my ($block) = map { $_->[1] } grep { $_->[0] eq 'python' && $_->[1] =~ /$framework/ } @blocks;
		my $file = PostgreSQL::Test::Utils::tempdir() . "/uses_$framework.py";
		PostgreSQL::Test::Utils::append_to_file($file, "import json, sys\npart = dict(p.split('=') for p in sys.argv[1].split(' '))\n"
			  . "message_id, invoice = 'incoming $framework', {'invoice': '$framework'}\n$set_up{$framework}$block\n$block");
		my $host = $node->host;
		ok(IPC::Run::run([ $python, $file, "host=$host port=" . $node->port . ' dbname=postgres' ], '<', \undef, '2>', \$error), "$framework: the program ends well")
		  or diag $error;
		$node->wait_until_sent;
		is(scalar(grep { $_->{cause} eq "incoming $framework" } $redis->entries('invoices')), 1, '... and has sent its message once');
	}
}

# Alembic: nothing is proposed to be dropped.
SKIP:
{
	skip 'no alembic', 1 unless IPC::Run::run([ $python, '-c', 'import alembic, psycopg2' ], '>&', '/dev/null');
	my ($option) = $drivers =~ /`(include_name=lambda .*?)`/;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/uses_alembic.py';
	PostgreSQL::Test::Utils::append_to_file($file, <<"END");
import sys, alembic.autogenerate, alembic.migration, sqlalchemy
part = dict(p.split("=") for p in sys.argv[1].split(" "))
engine = sqlalchemy.create_engine("postgresql+psycopg2://", connect_args=part)
options = dict(include_schemas=True, $option)
with engine.connect() as connection:
    context = alembic.migration.MigrationContext.configure(connection, opts=options)
    print(alembic.autogenerate.compare_metadata(context, sqlalchemy.MetaData()))
END
	IPC::Run::run([ $python, $file, 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres' ], '<', \undef, '>', \$output, '2>', \$error);
	is($output, "[]\n", 'alembic: proposes no change') or diag $error;
}

done_testing();
