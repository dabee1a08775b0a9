# A PostgreSQL server with the extension, and what the tests do with it.

package Outbox;

use strict;
use warnings FATAL => 'all';

# A condition that does not come true in so many seconds never does, also on a machine that
# is busy with other things. To be set before the modules of PostgreSQL read it.
BEGIN { $ENV{PG_TEST_TIMEOUT_DEFAULT} //= 180; }

use parent 'PostgreSQL::Test::Cluster';
use Connection;
use Exporter 'import';
use IPC::Run;
use List::Util qw(max min);
use PostgreSQL::Test::Utils ();
use Redis;
use Test::More;
use Time::HiRes qw(time usleep);

# A server would notice that the name of a test is too long for that of an application; what
# reads from psql in the first releases of PostgreSQL 16 takes a notice for an error.
$ENV{PGAPPNAME} = substr $ENV{PGAPPNAME}, 0, 63 if defined $ENV{PGAPPNAME};

our @EXPORT = qw(eventually is_exactly_once python seconds wait_until);

my $loads = 0;

# On a machine that is busy with other things a process may get no processor for ten seconds,
# and a test may take minutes. So a Redis or a store that takes long to answer is waited for, the
# log does not rotate, and what is refused does not die, unless a test asks for that.
my $settings = <<'END';
shared_preload_libraries = 'outbox'
wal_level = replica
log_statement = none
max_connections = 60
max_prepared_transactions = 20
max_worker_processes = 20
outbox.poll_interval = '100ms'
outbox.connect_timeout = '20s'
outbox.command_timeout = '20s'
outbox.retry_delay = '100ms'
outbox.retry_max_delay = '1s'
outbox.max_attempts = 1000000
outbox.replay_window = '1d'
END

# Runs the code until it returns true; returns false if it never does. It may die
# meanwhile, as writing to psql does while a server restarts. The longer that takes, and the
# more each look costs, the more seldom it is run: a psql costs as much as what is waited for.
sub wait_until(&)
{
	my ($code) = @_;
	my $start = time;
	my $look = $start;

	until (eval { $code->() })
	{
		my $now = time;
		my $waited = $now - $start;

		if ($waited > $PostgreSQL::Test::Utils::timeout_default)
		{
			Test::More::diag("it still dies: $@") if $@;
			return 0;
		}
		usleep(1e6 * min(0.5, max(0.03, 0.25 * $waited, 4 * ($now - $look))));
		$look = time;
	}
	return 1;
}

# A test that passes as soon as the code returns true.
sub eventually(&$)
{
	my ($code, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(&wait_until($code), $name);
}

# A Python that has clients of both servers; undef if there is none.
sub python
{
	foreach my $python ('/usr/bin/python3', 'python3')
	{
		my @try = ($python, '-c', 'import psycopg, redis');
		return $python if eval { IPC::Run::run(\@try, '>&', '/dev/null') };
	}
	return undef;
}

# How long the code takes.
sub seconds(&)
{
	my ($code) = @_;
	my $start = time;

	$code->();
	return time - $start;
}

# A test that two lists have the same values, in any order, none twice.
sub is_exactly_once
{
	my ($got, $expected, $name) = @_;
	my %difference;

	$difference{$_}++ foreach @$got;
	$difference{$_}-- foreach @$expected;
	my @lost = grep { $difference{$_} < 0 } keys %difference;
	my @more = grep { $difference{$_} > 0 } keys %difference;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(!@lost && !@more, "$name (" . @$expected . ')')
	  or diag 'lost: ' . @lost . " (@lost[0 .. ($#lost > 9 ? 9 : $#lost)])"
	  . ', too many: ' . @more . " (@more[0 .. ($#more > 9 ? 9 : $#more)])";
	return;
}

# Starts a server whose database "postgres" has the extension. Options: redis,
# conf (text for postgresql.conf), init and install_path (of
# PostgreSQL::Test::Cluster), started => 0, extension => 0.
sub create
{
	my ($class, $name, %option) = @_;
	my $self = $class->new($name, install_path => $option{install_path});

	$self->init(extra => [ '--encoding=UTF8', '--no-locale' ], %{ $option{init} // {} });
	$self->append_conf('postgresql.conf', $settings);
	# The default is the server that the user of this machine may have.
	my $url = $option{redis} ? $option{redis}->url : 'unix:///nonexistent/redis.sock';
	$self->append_conf('postgresql.conf', "outbox.redis_url = '$url'");
	$self->append_conf('postgresql.conf', $option{conf} // '');
	return $self unless $option{started} // 1;

	$self->start;
	$self->sql('CREATE EXTENSION outbox') if $option{extension} // 1;
	return $self;
}

# Copies the cluster that dev/run-tests has made, if there is one and it is like the one
# that is wanted: that takes less time than initdb.
sub init
{
	my ($self, %param) = @_;
	my $cluster = $ENV{OUTBOX_TEST_CLUSTER};
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;

	$cluster = undef if $self->install_path or "@{ $param{extra} // [] }" ne '--encoding=UTF8 --no-locale';
	local *PostgreSQL::Test::Utils::system_or_bail = sub
	{
		my ($command, @arguments) = @_;
		return $run->('cp', '-RPp', $cluster, $self->data_dir) if $command eq 'initdb' and $cluster;
		return $run->($command, @arguments);
	};
	return $self->SUPER::init(%param);
}

# Where it listens; Redis.pm has the same.
sub socket { return $_[0]->host . '/.s.PGSQL.' . $_[0]->port; }

# Its URL as a deduplication store, for a role; behind a proxy if one is given.
sub store_url
{
	my ($self, $role, $proxy) = @_;
	return "postgresql://$role\@127.0.0.1:" . $proxy->port . '/postgres?sslmode=disable' if $proxy;
	return "postgresql://$role\@/postgres?host=" . $self->host . '&port=' . $self->port;
}

# The same as that of PostgreSQL::Test::Cluster, which starts the program each time.
sub psql
{
	my ($self, $database, $sql, %param) = @_;
	my $is_plain = !grep { !/^(?:on_error_die|stdout|stderr)$/ && !(/^on_error_stop$/ && $param{$_}) } keys %param;
	my ($verbosity, $rest) = $sql =~ /\A(\\set VERBOSITY verbose\n)?(.*)\z/s;
	my @statements = $is_plain ? Connection::statements($rest) : ();
	my $connection = @statements ? Connection->new($self->socket, $database) : undef;
	return $self->SUPER::psql($database, $sql, %param) unless $connection;

	$connection->be_verbose if $verbosity;
	my ($status, $out, $error) = $connection->run(@statements);
	chomp($out, $error);
	${ $param{stdout} } = $out if $param{stdout};
	${ $param{stderr} } = $error if $param{stderr};
	die "error running SQL: '$error'\nwhile running '$sql'" if $status && $param{on_error_die};
	return wantarray ? ($status, $out, $error) : $status;
}

# Runs SQL that must succeed and returns its output. PostgreSQL gives up a command that all
# processes must leave a database for if one of them does not get a processor within five
# seconds; that alone is tried again, some times.
sub sql
{
	my ($self, $sql, $database, %param) = @_;
	my $tries = $sql =~ /\A\s*(?:CREATE|ALTER|DROP) DATABASE [^;]*\z/ ? 5 : 1;

	for (;;)
	{
		my $output = eval { $self->safe_psql($database // 'postgres', $sql, %param) };
		return $output if $@ eq '';
		die $@ if --$tries == 0 || $@ !~ /is being accessed by other users/;
	}
	return;
}

# Runs SQL that must fail and returns "SQLSTATE: message".
sub sql_error
{
	my ($self, $sql, $database, %param) = @_;
	my ($status, $out, $error) = $self->psql($database // 'postgres',
		"\\set VERBOSITY verbose\n$sql", on_error_stop => 1, %param);

	return $error =~ /ERROR:  ([0-9A-Z]{5}: .*)/ ? $1 : "no error: $out";
}

# A session that stays open; each query has the whole time limit for itself.
sub session
{
	my ($self, $database, %param) = @_;
	my $session = $self->background_psql($database // 'postgres', on_error_stop => 0, %param);
	$session->set_query_timer_restart;
	return $session;
}

# Starts a server whose postmaster was killed, as soon as its processes are gone.
sub start_after_kill
{
	my ($self) = @_;
	return wait_until { $self->{_pid} = undef; $self->start(fail_ok => 1) };
}

# Changes settings of the running server. Returns when the postmaster has read them, and
# tells its processes: a moment later each of them obeys.
sub set
{
	my ($self, %setting) = @_;
	$self->sql("ALTER SYSTEM SET $_ = '$setting{$_}'") foreach sort keys %setting;
	my $log = $self->log_position;
	$self->reload;
	wait_until { $self->log_since($log) =~ /received SIGHUP/ };
	return;
}

# Starts a standby of this server that can be a synchronous one, by the name "standby".
sub start_standby
{
	my ($self) = @_;
	my $standby = Outbox->new('standby');

	$self->backup('base');
	$standby->init_from_backup($self, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "primary_conninfo = '" . $self->connstr . " application_name=standby'");
	$standby->start;
	return $standby;
}

# Makes commits wait for a synchronous standby that is not there. Returns when
# they do: the checkpointer tells them, some time after the reload.
sub require_missing_standby
{
	my ($self) = @_;
	my $session = $self->session;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$self->set(synchronous_standby_names => 'nobody');
	$session->query_until(qr/asked/, "\\echo asked\n" . <<'END');
DO $$ BEGIN LOOP PERFORM pg_logical_emit_message(true, '', ''); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$;
END
	wait_until { $self->sql("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid") eq 't' }
		or die 'commits do not wait';
	$self->sql("SELECT pg_terminate_backend($pid)");
	eval { $session->quit };
	return;
}

sub status
{
	my ($self, $column, $database) = @_;
	return $self->sql("SELECT $column FROM outbox.status", $database);
}

# A test that a message that is enqueued now arrives, and makes stream "d" have so many entries.
sub sends
{
	my ($self, $redis, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$self->sql(q{SELECT outbox_enqueue('d', 'x')});
	eventually { $redis->count('d') == $count } $name or Test::More::diag $self->status('redis_error');
	return;
}

# Changes settings that a reload would show in the log, and restarts the server.
sub restart_with
{
	my ($self, %setting) = @_;
	foreach my $name (sort keys %setting)
	{
		$self->adjust_conf('postgresql.conf', $name, undef);
		$self->append_conf('postgresql.conf', "$name = '$setting{$name}'");
	}
	$self->restart;
	return;
}

# The same as that of PostgreSQL::Test::Cluster, whose limit is a number of attempts: on a busy
# machine these take several times as long as they should, and longer than a test may.
sub poll_query_until
{
	my ($self, $database, $query, $expected) = @_;
	my ($status, $out, $error);

	return 1 if wait_until
	{
		($status, $out, $error) = $self->psql($database, $query);
		$status == 0 && $out eq ($expected // 't') && $error eq '';
	};
	Test::More::diag("this did not become true: $query\nit returned: " . ($out // '') . "\n" . ($error // ''));
	return 0;
}

# Waits until all that committed is in Redis.
sub wait_until_sent
{
	my ($self, $database) = @_;
	return $self->poll_query_until($database // 'postgres', 'SELECT pending = 0 FROM outbox.status');
}

# Returns the newest window whose message ids are in all stores and tables that they are for;
# "all" if that is the newest one there is.
sub propagated
{
	my ($self, $database) = @_;
	return $self->sql(<<'SQL', $database);
SELECT CASE WHEN propagated = number THEN 'all' ELSE propagated::text END FROM (
	SELECT * FROM outbox.window_0 UNION ALL SELECT * FROM outbox.window_1 UNION ALL
	SELECT * FROM outbox.window_2 UNION ALL SELECT * FROM outbox.window_3) w
ORDER BY number DESC LIMIT 1
SQL
}

# Returns the key of a record that is not compacted, in hexadecimal digits.
sub key_of
{
	my ($self, $msgid) = @_;
	my $segment = $self->sql("SELECT segment FROM outbox.records WHERE msgid = '$msgid'");
	return $self->sql("SELECT key FROM outbox.record_$segment WHERE msgid = '$msgid'") =~ tr/-//dr;
}

# Check whether the server accepts connections. While it dies, writing to psql may fail, too.
sub answers
{
	my ($self) = @_;
	my $status = eval { $self->psql('postgres', 'SELECT 1') };

	return defined $status && $status == 0;
}

# Handles an incoming message, in one transaction; the message that it enqueues has the
# same text for a body. Options: database, stream, messages (so many are enqueued, and numbered).
sub handle
{
	my ($self, $msgid, $endpoint, %option) = @_;
	my $stream = $option{stream} // 'd';
	my $enqueue = defined $option{messages}
	  ? "outbox_enqueue('$stream', '$msgid ' || i) FROM generate_series(1, $option{messages}) i"
	  : "outbox_enqueue('$stream', '$msgid')";
	$endpoint //= 'default';
	$self->sql(<<"END", $option{database});
BEGIN;
SELECT outbox_begin('$msgid', '$endpoint');
SELECT $enqueue;
SELECT outbox_commit();
COMMIT;
END
	return;
}

# Processes a message without outgoing messages if it is new; returns "t" if it was.
sub process
{
	my ($self, $msgid, $database, $endpoint) = @_;
	$endpoint //= 'default';
	return $self->sql(<<"END", $database);
SELECT new FROM (SELECT outbox_begin('$msgid', '$endpoint') AS new OFFSET 0) n WHERE NOT new OR outbox_commit() >= 0
END
}

# The dispatchers of a database, by process id.
sub dispatchers
{
	my ($self, $database) = @_;
	return split /\n/, $self->sql(<<END);
SELECT pid FROM pg_stat_activity
WHERE backend_type LIKE 'outbox dispatcher%' AND datname = '@{[ $database // 'postgres' ]}'
END
}

# Waits for the dispatcher of a database and returns its process id. One that ends may still be listed beside its
# successor.
sub dispatcher
{
	my ($self, $database) = @_;
	my @pids;

	wait_until { @pids = $self->dispatchers($database); @pids == 1 } or return 0;
	return $pids[0];
}

# Kills a process of the server, and waits until the postmaster knows: from then on the
# server does not accept connections before it has recovered.
sub kill_process
{
	my ($self, $pid) = @_;
	my $log = $self->log_position;

	$pid or die 'there is no process to kill';
	kill 'KILL', $pid;
	return wait_until { $self->log_since($log) =~ /\(PID $pid\) was terminated by signal 9/ };
}

sub kill_dispatcher { my ($self) = @_; return $self->kill_process($self->dispatcher); }

# The process id of the bookkeeper (of this database, in this state); '' if there is none.
sub bookkeeper
{
	my ($self, $database, $state) = @_;
	my $of_database = defined $database ? "datname = '$database'" : 'true';
	$state //= 'true';
	return $self->sql("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'outbox bookkeeper' AND $of_database AND $state");
}

# Creates a trigger function, hang(), that hangs, and catches what should end it.
sub create_hang
{
	my ($self, $database) = @_;
	$self->sql(<<'END', $database);
CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			PERFORM pg_sleep(3600);
		EXCEPTION WHEN query_canceled OR OTHERS THEN
			NULL;
		END;
	END LOOP;
END;
$$;
END
	return;
}

# Check whether the bookkeeper is in hang().
sub hangs
{
	my ($self) = @_;
	return $self->bookkeeper(undef, "wait_event = 'PgSleep'") ne '';
}

# A position in the server's log, and what was logged since.
sub log_position { return -s $_[0]->logfile; }

sub log_since
{
	my ($self, $position) = @_;
	return PostgreSQL::Test::Utils::slurp_file($self->logfile, $position);
}

# Starts pgbench with one or more scripts and returns at once; see Outbox::Load.
# Options: scripts => [...] (needed), clients, seconds or transactions (each
# client's), rate (transactions of all clients per second; else as many as they can, which keeps
# the processors from other tests), database, args => [...].
sub start_load
{
	my ($self, %option) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $load = bless { node => $self, name => 'load ' . ++$loads, out => '', error => '' }, 'Outbox::Load';
	my @files;

	foreach my $script (@{ $option{scripts} })
	{
		my $file = "$folder/script_" . @files;
		PostgreSQL::Test::Utils::append_to_file($file, $script);
		push @files, '--file', $file;
	}
	$load->{run} = IPC::Run::start(
		[
			'pgbench', '--no-vacuum', '--client', $option{clients} // 4, '--jobs', 1,
			$option{transactions}
			? ('--transactions', $option{transactions})
			: ('--time', $option{seconds} // 600),
			$option{rate} ? ('--rate', $option{rate}) : (),
			@files, @{ $option{args} // [] }, $self->connstr($option{database} // 'postgres') . " application_name='$load->{name}'"
		],
		'<', \undef, '>', \$load->{out}, '2>', \$load->{error});
	return $load;
}

# Runs pgbench to its end, which must be successful.
sub load
{
	my ($self, %option) = @_;
	my $load = $self->start_load(%option);

	$load->finish or die "pgbench failed: $load->{error}";
	return $load;
}

# A pgbench in the background.
package Outbox::Load;

# Waits for its end; returns true if it was successful.
sub finish
{
	my ($self) = @_;
	return delete($self->{run})->finish;
}

sub is_running
{
	my ($self) = @_;
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return $self->{run}->pumpable;
}

# Ends it and waits until its sessions are gone.
sub stop
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;

	$run->signal('TERM');
	$run->finish;
	Outbox::wait_until
	{
		my ($status, $sessions) = $self->{node}->psql('postgres',
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = '$self->{name}'");
		$status == 0 && $sessions eq '0';
	};
	return;
}

1;
