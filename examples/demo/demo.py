"""The outbox under load, and two books compared at the end.

    demo.py FOLDER SECONDS

Starts a PostgreSQL (the first of the path; the extension must be installed) and
a Redis in FOLDER, lets client processes handle incoming messages for SECONDS,
and reconciles what PostgreSQL and Redis say. Exits with 0 if they agree.

Kill any process of it with kill -9, once or often: a server or client that
died is started again, a message that was not acknowledged is delivered again.
"""

import os
import selectors
import signal
import sys
import time

import psycopg
import redis

import reconcile
from display import Display, count
from intake import Intake
from servers import Postgres, Redis, ServerFailed
from workers import Client, Probe

CLIENTS = 8
SCALE = 10  # of pgbench: 10 branches, 100 tellers, a million accounts
STREAM = "balance-changed"
PATIENCE = 60  # seconds without any progress that are too many
PROGRESS_INTERVAL = 2  # seconds


class DemoFailed(Exception):
    """The demo could not go on; says why."""


def main(folder, seconds):
    demo = Demo(folder)
    try:
        demo.prepare()
        demo.work(seconds)
        demo.drain()
        return demo.report()
    except ServerFailed as failure:
        demo.display.failure(failure, failure.words)
        return 1
    except (DemoFailed, psycopg.Error, redis.RedisError, OSError) as failure:
        demo.display.failure(failure, demo.postgres.last_words())
        return 1
    finally:
        demo.stop()


class Demo:
    def __init__(self, folder):
        os.makedirs(folder)
        self.display = Display(sys.stdout)
        self.redis = Redis(os.path.join(folder, "redis"))
        self.postgres = Postgres(
            os.path.join(folder, "postgres"),
            {"shared_preload_libraries": "outbox", "outbox.redis_url": self.redis.url},
        )
        self.intake = Intake(SCALE)
        self.probe = Probe(self.redis.url, STREAM)
        self.workers = []
        self.selector = selectors.DefaultSelector()
        self.admin = None  # our own session, for outbox.status
        self.stream = redis.Redis.from_url(self.redis.url, socket_timeout=5)
        self.committed_at = {}  # message → when its commit was done, of some messages
        self.arrived_at = {}  # message → when a consumer had its event
        self.broken_at = 0.0  # when a client last lost its connection
        self.started = None  # the load, on the monotonic clock
        self.load_seconds = 0.0
        self.next_progress = 0.0

    # Beginning and end

    def prepare(self):
        """Start the servers, make pgbench's tables and the extension."""
        self.display.say(f"Starting PostgreSQL and Redis, filling pgbench's tables (scale {SCALE})")
        self.redis.start()
        self.postgres.start()
        self.postgres.run("pgbench", "--initialize", "--quiet", f"--scale={SCALE}")
        self.admin_query("CREATE EXTENSION outbox")
        # The clients are an ordinary role, as an application is.
        self.admin_query("CREATE ROLE shop LOGIN")
        self.admin_query("SELECT outbox_grant('shop')")
        self.admin_query("GRANT SELECT, UPDATE ON pgbench_accounts, pgbench_tellers, pgbench_branches TO shop")
        self.admin_query("GRANT INSERT ON pgbench_history TO shop")

    def stop(self):
        for worker in self.workers:
            worker.kill()
        self.postgres.stop()
        self.redis.stop()

    # The load

    def work(self, seconds):
        """Let the clients handle incoming messages for so many seconds."""
        self.start_worker(self.probe)
        for number in range(1, CLIENTS + 1):
            self.start_worker(Client(number, self.postgres.conninfo(user="shop"), STREAM))
        self.until(
            lambda: all(client.is_idle for client in self.clients()),
            lambda: None,
            "clients do not get ready",
        )
        self.until(lambda: self.status("dispatcher_pid"), lambda: None, "no dispatcher runs")
        self.display.say(f"{CLIENTS} clients at work for {seconds:g} seconds. Kill what you like with kill -9:")
        self.display.say(f"  {self.pids()}\n")
        self.display.header()

        self.started = time.monotonic()
        self.next_progress = self.started + PROGRESS_INTERVAL
        while time.monotonic() < self.started + seconds:
            self.step()
        self.intake.close()
        self.until(lambda: self.intake.is_done, lambda: self.intake.acknowledged, "messages are not acknowledged")
        self.load_seconds = time.monotonic() - self.started

    def drain(self):
        """Wait until the outbox says that all is in Redis, and the probe has seen it."""
        self.until(lambda: self.pending() == 0, self.sent, "messages do not leave the outbox")
        self.until(
            lambda: self.probe.last == self.last_entry(),
            lambda: self.probe.last,
            "events do not reach a consumer",
        )
        self.show_progress(last=True)

    def until(self, is_reached, progress, complaint):
        """Go on until something is reached; fail if there is no progress for long."""
        seen, deadline = progress(), time.monotonic() + PATIENCE
        while not is_reached():
            now_seen = progress()
            if now_seen != seen:
                seen, deadline = now_seen, time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                raise DemoFailed(f"for {PATIENCE} s {complaint}: {self.problem() or 'no problem is reported'}")
            self.step()

    def step(self):
        """One turn: hand out work, take in what the workers say, revive what died."""
        if self.started:
            self.deliver()
        self.listen()
        self.keep_servers_alive()
        self.show_progress()

    def deliver(self):
        for client, message in self.intake.hand_out([client for client in self.clients() if client.is_idle]):
            client.handle(message)

    def listen(self):
        for key, _ in self.selector.select(timeout=0.05):
            for answer in key.data.answers():
                self.take(key.data, answer)
            if key.data.is_gone:
                self.revive(key.data)

    def keep_servers_alive(self):
        for server in (self.redis, self.postgres):
            if died := server.keep_alive():
                self.display.note(f"{server.name} {died}; started again")

    def take(self, worker, answer):
        """Take in an answer of a worker; see client.py and probe.py."""
        if worker is self.probe:
            for message_id in answer["messages"]:
                self.arrived_at.setdefault(message_id, answer["time"])
        elif answer["outcome"] == "error":
            raise DemoFailed(f"{worker.name}: {answer['reason']}")
        elif answer["outcome"] != "ready":
            if answer["outcome"] == "failed":
                self.note_lost_connection()
            message = self.intake.settle(worker, answer["outcome"])
            if "committed_at" in answer:
                self.committed_at[message["id"]] = answer["committed_at"]

    def clients(self):
        return [worker for worker in self.workers if worker is not self.probe]

    def start_worker(self, worker):
        worker.start()
        self.workers.append(worker)
        self.selector.register(worker.output, selectors.EVENT_READ, worker)

    def revive(self, worker):
        """A worker died: what it did not acknowledge goes back to the queue."""
        self.selector.unregister(worker.output)
        self.workers.remove(worker)
        reason = worker.kill()
        self.intake.give_back(worker)
        self.display.note(f"{worker.name} {reason}; started again")
        self.start_worker(worker)

    # What is shown

    def note_lost_connection(self):
        """When a server process dies, all clients report it, within a second or so."""
        now = time.monotonic()
        if now > self.broken_at + 3:
            self.display.note("clients lost their connections; what they had is delivered again")
        self.broken_at = now

    def show_progress(self, last=False):
        now = time.monotonic()
        if not self.started or now < self.next_progress and not last:
            return
        self.next_progress = now + PROGRESS_INTERVAL
        self.display.progress(now - self.started, self.intake.processed, self.sent(), self.pending(), last)

    def sent(self):
        """How many events are in the stream; None while Redis does not answer."""
        try:
            return self.stream.xlen(STREAM)
        except redis.RedisError:
            return None

    def last_entry(self):
        """The newest entry of the stream; None while Redis does not answer."""
        try:
            entries = self.stream.xrevrange(STREAM, count=1)
        except redis.RedisError:
            return None
        return entries[0][0].decode() if entries else Probe.FIRST

    def pending(self):
        """How many messages wait for dispatch; None while PostgreSQL does not answer."""
        return self.status("pending")

    def problem(self):
        return self.status("problem")

    def status(self, column):
        try:
            return self.admin_query(f"SELECT {column} FROM outbox.status")[0]
        except psycopg.Error:
            self.admin = None
            return None

    def admin_query(self, query):
        if self.admin is None:
            self.admin = psycopg.connect(self.postgres.conninfo(), autocommit=True)
        cursor = self.admin.execute(query)
        return cursor.fetchone() if cursor.description else None

    def pids(self):
        dispatcher = self.admin_query("SELECT dispatcher_pid FROM outbox.status")[0]
        clients = [client.pid for client in self.clients()]
        return (
            f"postmaster {self.postgres.pid}, dispatcher {dispatcher}, "
            f"redis-server {self.redis.pid}, clients {clients[0]} to {clients[-1]}"
        )

    def report(self):
        """Reconcile, print the result, return the exit code."""
        result = self.reconcile()
        latencies = sorted(
            max(0.0, self.arrived_at[message] - committed)
            for message, committed in self.committed_at.items()
            if message in self.arrived_at
        )
        self.display.say("\nTwo books, one in PostgreSQL, one in Redis:\n")
        self.display.result(result)
        refused, raced = count(self.intake.refused), count(self.intake.raced)
        self.display.fact("duplicates refused", f"{refused}, {raced} of them at commit, in a race")
        self.display.fact("transactions per second", count(round(result.messages / self.load_seconds)))
        if latencies:
            self.display.fact("commit to stream", f"p50 {percentile(latencies, 50)}  p99 {percentile(latencies, 99)}")
        self.display.verdict(result)
        return 0 if result.agrees else 1

    def reconcile(self):
        """Compare the books; again if a server died over it."""
        results = []

        def compare():
            try:
                books = self.postgres.conninfo(), self.redis.url, STREAM
                results.append(reconcile.reconcile(*books, self.intake.made))
            except (psycopg.OperationalError, redis.ConnectionError):
                return False
            return True

        self.until(compare, lambda: None, "the books cannot be read")
        return results[0]


def percentile(ordered, percent):
    seconds = ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
    return f"{seconds * 1000:.1f} ms"


def leave(signum, _frame):
    """SIGTERM and SIGINT end the demo like an error does: servers are stopped."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
