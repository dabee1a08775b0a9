"""Who takes part. Each rival is a folder in bench/rivals/ with the SQL that sets it up, that
callers run and that makes a backlog, and with the relay that takes its messages to Redis.

A rival that cannot run here is left out, and the results say why.
"""
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass

from servers import FOLDER, SOCKET, backends, conninfo, connect, create_database, host, run_file, sql

RIVALS = os.path.dirname(os.path.abspath(__file__)) + "/rivals"
PROGRAMS = FOLDER + "/programs"
NODE = FOLDER + "/node"


class CannotRun(Exception):
    """What is missing, as a sentence for the results."""


@dataclass(frozen=True)
class Rival:
    title: str
    folder: str
    database: str
    caller: str = "caller.sql"  # for pgbench
    client: str = ""            # a program that is caller and relay in one, instead
    client_mode: tuple = ()
    setup: tuple = ("setup.sql",)
    relay: tuple = ()           # command
    ticker: bool = False        # pgqd runs beside the relay
    slot: bool = False          # the relay reads a replication slot
    server: str = "theirs"
    messages: int = 1           # in a transaction
    delivers: bool = True       # its messages arrive in Redis
    beside_open: bool = False   # a transaction is open in its database all the time
    round_trips: int = 5        # of a transaction
    slow: bool = False
    needs: str = ""             # what must be there: a name of NEEDS

    def file(self, name):
        return f"{RIVALS}/{self.folder}/{name}"

    def read(self, name):
        with open(self.file(name)) as text:
            return text.read()


def outbox(title, **more):
    return Rival(title, **{"folder": "outbox", "database": "outbox", "server": "ours", "setup": ("setup.sql",), "round_trips": 6, **more})


def table(title, database, **more):
    return Rival(title, "table", database, **{"relay": ("table_relay", "{conninfo}", "{socket}"), **more})


FLOOR = Rival("round-trip floor: three SELECT 1", "floor", "floor", setup=(), delivers=False)
FLOOR_OF_CLIENT = Rival("round-trip floor, by the client of NServiceBus' shape", "floor", "floor", setup=(), delivers=False,
                        client="nservicebus_client", client_mode=("floor",))
BUSINESS = Rival("business transaction alone", "floor", "floor", setup=(), delivers=False, caller="business.sql")

OUTBOX = outbox("outbox")
TOGETHER = outbox("outbox, enqueue and commit in one SELECT", caller="together.sql", round_trips=5)
STATEMENT = outbox("outbox, handler in one statement", caller="statement.sql", round_trips=1)
PIPELINED = outbox("outbox, pipelined", caller="pipelined.sql", round_trips=1)
MANY = outbox("outbox, ten messages by outbox_enqueue_many", caller="many.sql", messages=10)
UNDISPATCHED = outbox("outbox, dispatch off", database="undispatched", delivers=False, setup=("setup.sql", "undispatched.sql"))
OUTBOX_BESIDE_OPEN = outbox("outbox, beside an open transaction", database="outbox_beside_open", beside_open=True)

POLLED = table("hand-written table, polled", "polled")
POLLED_STATEMENT = table("hand-written table, polled, all in one statement", "polled", caller="statement.sql", round_trips=1)
NOTIFIED = table("hand-written table, LISTEN/NOTIFY", "notified", setup=("setup.sql", "listen.sql"),
                 relay=("table_relay", "{conninfo}", "{socket}", "listen"))
UNRELAYED = table("hand-written table, no relay", "unrelayed", relay=(), delivers=False)
POLLED_BESIDE_OPEN = table("hand-written table, polled, beside an open transaction", "polled_beside_open", beside_open=True)
NSERVICEBUS = Rival("NServiceBus' shape", "nservicebus", "nservicebus", client="nservicebus_client", round_trips=7)
PGQ = Rival("PgQ with pgqd", "pgq", "pgq", relay=("pgq_relay", "{conninfo}", "{socket}"), ticker=True, needs="pgq")
LOGICAL = Rival("logical decoding (pgoutput)", "logical", "logical", relay=("logical_relay", "{conninfo}", "{socket}"),
                slot=True, server="logical")
GRAPHILE = Rival("graphile-worker", "graphile_worker", "graphile_worker", setup=("setup.sql",),
                 relay=("node", NODE + "/graphile_worker.mjs", "{host}", "{database}", "{socket}"), needs="node", slow=True)
PG_BOSS = Rival("pg-boss", "pg_boss", "pg_boss", setup=("setup.sql",),
                relay=("node", NODE + "/pg_boss.mjs", "{host}", "{database}", "{socket}"), needs="node", slow=True)

ALL = (BUSINESS, OUTBOX, TOGETHER, STATEMENT, PIPELINED, MANY, UNDISPATCHED, OUTBOX_BESIDE_OPEN, POLLED, POLLED_STATEMENT,
       NOTIFIED, UNRELAYED, POLLED_BESIDE_OPEN, NSERVICEBUS, PGQ, LOGICAL, GRAPHILE, PG_BOSS)


# What must be there.

def need_pgq():
    if not sql("theirs", "postgres", "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'"):
        raise CannotRun("the extension pgq is not installed (Debian: postgresql-15-pgq3)")
    if not shutil.which("pgqd"):
        raise CannotRun("pgqd is not installed (Debian: pgqd)")


def need_node():
    """Installs the packages that package-lock.json names, once."""
    if os.path.exists(NODE + "/node_modules/.package-lock.json"):
        return
    if not shutil.which("node") or not shutil.which("npm"):
        raise CannotRun("Node.js and npm are not installed")
    version = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < 18:
        raise CannotRun(f"Node.js is {version}, and 18 is needed")
    shutil.copytree(RIVALS + "/node", NODE, dirs_exist_ok=True)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=NODE, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise CannotRun("npm could not install it: " + (done.stderr.strip().split("\n") or ["?"])[0])


NEEDS = {"pgq": need_pgq, "node": need_node, "": lambda: None}


# A rival at work.

prepared = set()


def prepare(rival):
    """Makes its database, unless there is one already."""
    if rival.database in prepared:
        return
    try:
        NEEDS[rival.needs]()
        create_database(rival.server, rival.database)
        for name in rival.setup:
            run_file(rival.server, rival.database, rival.file(name))
        if rival.needs == "node":
            subprocess.run(command_of(rival) + ["install"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=NODE)
    except subprocess.CalledProcessError as error:
        raise CannotRun(error.stderr.decode().strip().split("\n")[0]) from error
    except (RuntimeError, OSError) as error:
        raise CannotRun(str(error)) from error
    prepared.add(rival.database)


def command_of(rival):
    names = {"conninfo": conninfo(rival.server, rival.database), "socket": SOCKET,
             "host": host(rival.server), "database": rival.database}
    command = [word.format(**names) for word in rival.relay]
    if not shutil.which(command[0]):
        command[0] = f"{PROGRAMS}/{command[0]}"
    return command


def environment(synchronous):
    return {**os.environ, "PGOPTIONS": f"-c synchronous_commit={synchronous}", "PGAPPNAME": "relay"}


class Relay:
    """The processes that take a rival's messages to Redis, and their backends."""

    def __init__(self, rival, synchronous="on"):
        self.rival, self.processes = rival, []
        commands = [command_of(rival)] if rival.relay else []
        if rival.ticker:
            commands.append(["pgqd", ticker_settings(rival)])
        self.log = f"{FOLDER}/{rival.database}.log"
        with open(self.log, "w") as log:
            for command in commands:
                self.processes.append(subprocess.Popen(command, env=environment(synchronous), stdin=subprocess.DEVNULL,
                                                       stdout=log, stderr=log))

    def pids(self):
        if self.rival.server == "ours":
            return [sql("ours", self.rival.database, "SELECT dispatcher_pid FROM outbox.status")]
        return [process.pid for process in self.processes] + [
            pid for name in ("relay", "pgqd") for pid in backends(self.rival.server, name)]

    def check(self):
        for process in self.processes:
            if process.poll() not in (None, 0):
                with open(self.log) as log:
                    raise CannotRun("its relay ended: " + log.read().strip()[-300:])

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def at_work(rival, synchronous="on"):
    with slot_of(rival), relay_of(rival, synchronous) as relay:
        yield relay


@contextmanager
def relay_of(rival, synchronous="on"):
    relay = Relay(rival, synchronous)
    try:
        yield relay
    finally:
        relay.stop()


@contextmanager
def slot_of(rival):
    if rival.slot:
        sql(rival.server, rival.database, "SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
    try:
        yield
    finally:
        if rival.slot:
            drop_slot(rival)


def drop_slot(rival):
    """As soon as the server has noticed that nobody reads it any more."""
    with connect(rival.server, rival.database) as connection:
        while connection.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'bench'").fetchone()[0]:
            time.sleep(0.05)
        connection.execute("SELECT pg_drop_replication_slot('bench')")


def ticker_settings(rival):
    path = f"{FOLDER}/pgqd.ini"
    with open(path, "w") as settings:
        settings.write(f"[pgqd]\nbase_connstr = host={host(rival.server)} user=postgres\ndatabase_list = {rival.database}\n"
                       f"initial_database = postgres\nlogfile = {FOLDER}/pgqd.log\npidfile = {FOLDER}/pgqd.pid\nticker_period = 0.1\n")
    return path


opened = 0


@contextmanager
def open_transactions():
    """From the beginning of the run to its end a transaction with a snapshot is open in some databases."""
    global opened
    open_ones, opened = [], time.monotonic()
    for rival in ALL:
        if rival.beside_open:
            prepare(rival)
            open_ones.append(connect(rival.server, rival.database))
            open_ones[-1].execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            open_ones[-1].execute("SELECT 1")  # takes the snapshot, and no lock
    yield
    for connection in open_ones:
        connection.close()


def open_for():
    """Seconds since these transactions began."""
    return time.monotonic() - opened
