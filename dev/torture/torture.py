"""Tortures the outbox, and then compares what clients, PostgreSQL and Redis know.

    torture.py FOLDER

Starts a PostgreSQL (the first of the path; the extension must be installed) and
a Redis in FOLDER. For TORTURE_SECONDS (600), client processes handle incoming
messages, which come more than once and at the same time, in transactions of all
kinds, and note what they were told; meanwhile a plan made of TORTURE_SEED kills
processes, cuts connections, breaks destinations, and does what administrators
do: changes settings and endpoints, rebuilds tables and indexes, pauses, replays,
dumps, sets the clock. Then all is healed, and when the outbox says that nothing
is pending:

    told committed      the business rows are there, each message is in its stream
    told rolled back    neither
    told nothing        (the connection died at COMMIT) either
    no message twice (but by a replay), each incoming message processed once within the retention
    outbox_wait() said true    its messages were there by then
    order               what was enqueued after a commit comes behind its messages (of its key,
                        where dead messages hold back others)
    told discarded      the dead message never comes
    record tables       all rows are marked
    stores              got all ids
    indexes             have all rows

Exits with 0 if that is so. With TORTURE_LOSSY=1 Redis also comes back without
its newest writes; then messages may come again, never be missing. The seed also
decides whether the connections to Redis are over TLS; TORTURE_TLS=0 or 1 does, too.
With TORTURE_KILL_POINTS=1 processes also die at lines of the source; see kill_points.py.

With TORTURE_CLUSTER=1 there is a Redis Cluster of three masters and three replicas in the
place of the Redis. Masters are killed, frozen, emptied, and replaced by replicas
that lack the last seconds; slots move, and stay torn between two nodes for a while. What
consumers had read long before a node lost it may be missing; nothing else may. What was
lost comes again, and no message is there twice in the end; no key is on two nodes.
TORTURE_ONLY names the kinds of events that happen, instead of all; see plan.py.
"""

import multiprocessing
import os
import random
import re
import signal
import sys
import time

import psycopg
import redis

import kill_points
import plan
from administration import RECORD_COLUMNS, create_inbox
from check import SHOWN, Books
from client import CAPTURED, Client
from cluster import Cluster
from cluster_events import ClusterEvents
from consumer import Consumer
from events import MANY_ATTEMPTS, Events
from plan import DESTINATIONS, STREAMS
from servers import Postgres, Redis, ServerFailed

CLIENTS = 8
PATIENCE = 180  # seconds without progress that are too many
PROGRESS_INTERVAL = 10  # seconds

SETTINGS = {
    "shared_preload_libraries": "outbox",
    "max_connections": 60,
    "max_worker_processes": 20,
    "max_prepared_transactions": 50,
    "restart_after_crash": "on",
    "deadlock_timeout": "200ms",
    "log_line_prefix": "%m [%p] %b %e ",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "outbox.cleanup_interval": "100ms",
    "outbox.poll_interval": "100ms",
    "outbox.connect_timeout": "1s",
    "outbox.command_timeout": "1s",
    "outbox.retry_delay": "50ms",
    "outbox.retry_max_delay": "1s",
    "outbox.takeover_delay": "1s",
    "outbox.max_attempts": MANY_ATTEMPTS,
}

# What a server that is only killed by this program has no reason to log. (57P0x and 57014:
# it was told to end; 3D000: a dispatcher was started for a database that was dropped.)
ALARMS = re.compile(
    r"PANIC|TRAP|signal (6|7|8|11):|missing(?!, maybe only for a moment)|invalid page|exit code [2-9]"
    r"|could not (read(?! the fence| the lease| which )|open(?! file \"./outbox_kill_point)|access)"
    r"|outbox (dispatcher|launcher) (?!57P0|57014|3D000)[0-9A-Z]{5} (ERROR|FATAL):"
)


class TortureFailed(Exception):
    """It could not go on; says why."""


class Torture:
    def __init__(self, folder, seconds, seed, lossy, tls, cluster, only):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.seconds = seconds
        self.seed = seed
        self.lossy = lossy or cluster  # a replica that takes over may lack the newest writes
        self.retention = 30 if seconds >= 60 else 12  # longer than any message is delivered again
        self.clients = []
        self.stop_clients = multiprocessing.Event()
        self.postgres = Postgres(os.path.join(folder, "postgres"))
        self.only = only
        self.redis = Cluster(os.path.join(folder, "redis"), tls) if cluster else Redis(os.path.join(folder, "redis"), tls)
        self.consumer = Consumer(self.redis, STREAMS) if cluster else None
        self.started = time.monotonic()
        self.next_progress = 0

    def say(self, text):
        print(f"{time.monotonic() - self.started:7.2f}  {text}", flush=True)

    def run(self):
        kinds = plan.kinds(self.lossy, self.redis.is_cluster, kill_points.are_built(), self.only)
        events = plan.make(self.seed, self.seconds, self.retention, self.lossy, self.redis.is_cluster, kinds)
        how = (
            (", a Redis Cluster", self.redis.is_cluster), (", Redis forgets", self.lossy), (", over TLS", self.redis.tls_port),
            (", with kill points", kill_points.are_built()),
        )  # fmt: skip
        print(f"seed {self.seed}, {self.seconds:g} seconds{''.join(word for word, holds in how if holds)}; the plan:")
        for event in events:
            print(f"  {event}")
        self.prepare()
        self.go_through(events)
        self.drain()
        return self.report()

    def prepare(self):
        self.start_clients()  # before there are threads; they wait for the server
        self.proxies = self.redis.make_proxies()
        self.redis.start()
        arguments = self.postgres, self.redis, self.proxies, DESTINATIONS, STREAMS, self.limit_is_small, self.say
        self.events = ClusterEvents(self.consumer, *arguments) if self.consumer else Events(*arguments)
        if self.consumer:
            self.consumer.start()
        self.postgres.create(
            {
                **SETTINGS,
                "outbox.redis_url": self.redis.url(),
                **({"outbox.redis_tls_ca_file": self.redis.certificate} if self.redis.tls_port else {}),
                "outbox.retention": f"{self.retention}s",
                # A Redis that loses writes needs a log that keeps them.
                "outbox.replay_window": "60s" if self.lossy else "2s",
            }
        )
        self.postgres.start()
        for query in (
            "CREATE EXTENSION outbox",
            "SELECT outbox_create_endpoint('short', NULL, '1s')",
            *create_inbox("tabled_inbox"),
            *create_inbox("moving_inbox"),
            f"SELECT outbox_create_endpoint('tabled', record_table => 'tabled_inbox', record_columns => '{RECORD_COLUMNS}')",
            f"SELECT outbox_create_endpoint('stored', dedup_store => '{self.events.store_url}')",
            "SELECT outbox_create_endpoint('moving')",
            "SELECT outbox_create_endpoint('sold')",
            "CREATE TABLE business (token text, part integer, endpoint text, incoming text)",
            f"SELECT outbox_set_destination('{plan.HOLDING}', on_dead => 'hold')",
            "CREATE ROLE shop LOGIN",  # clients are an ordinary role, as an application is
            "SELECT outbox_grant('shop')",
            "CREATE TABLE forwarded (dest text, body text, headers jsonb, message_id text, deliver_at timestamptz, key text)",
            "CREATE TRIGGER forward AFTER INSERT ON forwarded FOR EACH ROW EXECUTE FUNCTION outbox_forward("
            "'dest=dest', 'body=body', 'headers=headers', 'id=message_id', 'deliver_at=deliver_at', 'key=key')",
            "CREATE TABLE captured (tx text, part integer, number integer, grown integer, PRIMARY KEY (tx, part, number))",
            f"SELECT outbox_capture('captured', '{CAPTURED}', '{{insert}}')",
            "GRANT INSERT ON business, forwarded, captured TO shop",
        ):
            self.events.run(query)
        self.open_the_gate.set()

    def start_clients(self):
        self.open_the_gate = multiprocessing.Event()
        self.limit_is_small = multiprocessing.Value("b", 0)
        inboxes = [multiprocessing.Queue() for _ in range(CLIENTS)]
        for inbox in inboxes:
            inbox.cancel_join_thread()
        counter = multiprocessing.Value("q", 0)
        for number in range(CLIENTS):
            process = multiprocessing.Process(target=self.be_a_client, args=(number, inboxes, counter), daemon=True)
            process.start()
            self.clients.append(process)

    def be_a_client(self, number, inboxes, counter):
        for inbox in inboxes:
            inbox.cancel_join_thread()
        self.open_the_gate.wait()
        Client(
            number, self.seed, self.postgres.conninfo("shop"), self.ledger(number), DESTINATIONS,
            self.retention, inboxes, counter, self.limit_is_small, self.stop_clients,
        ).run()  # fmt: skip

    def ledger(self, number):
        return os.path.join(self.folder, f"ledger.{number}")

    def go_through(self, events):
        """Do what the plan says, at its time."""
        self.started = time.monotonic()
        for event in events:
            self.wait_until(event.at)
            self.events.happen(event)
        self.wait_until(self.seconds)

    def wait_until(self, at):
        while time.monotonic() < self.started + at:
            self.events.undo_due()
            self.show_progress()
            time.sleep(0.02)
        self.events.undo_due()
        self.show_progress()  # also if the plan is late

    def drain(self):
        """Heal all, let the clients end, wait until the outbox says that all is in Redis."""
        self.say("healing")
        self.stop_clients.set()
        self.events.heal()
        deadline = time.monotonic() + PATIENCE
        while any(client.is_alive() for client in self.clients):
            if time.monotonic() > deadline:
                raise TortureFailed("clients do not end")
            time.sleep(0.1)
        seen, deadline = None, time.monotonic() + PATIENCE
        while True:
            status = self.status()
            if status and status["dead"]:
                self.events.surely(self.events.retry)
            if status and not any(status[name] for name in ("pending", "deferred", "scheduled", "dead")):
                break
            if self.entries() != seen:
                seen, deadline = self.entries(), time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                raise TortureFailed(f"messages do not leave the outbox: {status}")
            self.show_progress()
            time.sleep(0.1)
        self.say("nothing is pending")
        self.wait_for_propagation()
        time.sleep(1)  # what is sent twice may come now
        if status["problem"]:
            self.say(f"problem: {status['problem']}")

    def wait_for_propagation(self):
        """Wait until records in tables are marked; the comparison reports those that are not."""
        deadline = time.monotonic() + PATIENCE
        unmarked = "SELECT count(*) FROM (SELECT done FROM tabled_inbox UNION ALL SELECT done FROM moving_inbox) AS inbox WHERE NOT done"
        while time.monotonic() < deadline:
            try:
                if not self.events.query(unmarked)[0][0]:
                    return
            except psycopg.Error as error:
                self.say(f"not told whether all is marked: {error}")
            time.sleep(0.1)

    def status(self):
        try:
            with self.postgres.connect() as connection:
                cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
                cursor.execute("SELECT * FROM outbox.status")
                return cursor.fetchone()
        except psycopg.Error as error:
            self.events.note_failure("status", error)
            return None

    def entries(self):
        try:
            return [self.redis.server_of(stream).xlen(stream) for stream in STREAMS]
        except redis.RedisError:  # a node of a cluster may be replaced now
            return None

    def show_progress(self):
        if time.monotonic() < self.next_progress:
            return
        self.next_progress = time.monotonic() + PROGRESS_INTERVAL
        status = self.status()
        if status:
            names = "sent", "pending", "deferred", "scheduled", "redis_state", "dispatcher_state"
            self.say("-- " + ", ".join(f"{name} {status[name]}" for name in names))

    def report(self):
        """Compare, print the result, return the exit code."""
        books = Books()
        for number in range(CLIENTS):
            books.read_ledger(self.ledger(number))
        with self.postgres.connect() as connection:
            books.read_postgres(connection)
            rotations = dict(connection.execute("SELECT ring, max(generation) FROM outbox.ring GROUP BY ring").fetchall())
        books.read_redis(self.redis, STREAMS)
        if self.consumer:
            self.consumer.end()
            books.read_consumer(self.consumer, self.events.sold_at, time.monotonic() - self.retention / 2)
            books.strays = list(self.redis.strays())
        else:
            for path in self.redis.all_writes():
                books.read_store(path)
        books.errors.extend(self.events.errors)
        books.read_log(self.postgres.log, ALARMS)

        print(f"\nevents: {', '.join(f'{count} {kind}' for kind, count in sorted(self.events.done.items()))}")
        print(f"connections to Redis cut or refused: {sum(proxy.harmed for proxy in self.proxies)}; changes of state of segments: {rotations}")
        for name, value in books.totals():
            print(f"{name}: {value}")
        failed = False
        for what, cases in books.differences(self.events, self.lossy):
            if not cases:
                continue
            allowed = self.lossy and not self.consumer and what == "messages came more than once"
            failed = failed or not allowed
            print(f"{len(cases)} {what}{' (allowed)' if allowed else ''}:")
            for case in cases[:SHOWN]:
                print(f"    {case}")
        print(f"seed {self.seed}: {'FAILED' if failed else 'the books agree'}")
        return 1 if failed else 0

    def stop(self):
        for client in self.clients:
            client.kill()
        self.redis.thaw()
        for server in (self.postgres, self.redis):
            server.end(signal.SIGQUIT if server is self.postgres else signal.SIGKILL)


def main(folder):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    seed = os.environ.get("TORTURE_SEED") or str(random.SystemRandom().randrange(1, 1_000_000))
    seconds = float(os.environ.get("TORTURE_SECONDS") or 600)
    tls = os.environ.get("TORTURE_TLS") or random.Random(f"{seed}/tls").choice("01")
    lossy, cluster = (os.environ.get(name, "0") not in ("", "0") for name in ("TORTURE_LOSSY", "TORTURE_CLUSTER"))
    torture = Torture(folder, seconds, seed, lossy, tls != "0", cluster, os.environ.get("TORTURE_ONLY", "").split())
    try:
        return torture.run()
    except (TortureFailed, ServerFailed) as failure:
        print(f"seed {seed}: FAILED: {failure}\nThe end of the log of PostgreSQL:\n{torture.postgres.last_words()}")
        return 1
    finally:
        torture.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    multiprocessing.set_start_method("fork")  # as it was before Python 3.14: clients share what is open
    sys.exit(main(sys.argv[1]))
