"""What happens to the ring of records while workers work: it rotates, is compacted, expires; the server dies."""

import os
import signal
import time

import psycopg
from session import PATIENCE, Session, Stuck

ROUNDS = 2000  # of cleanup that are enough for anything

# Records of nobody, so many with ids of so many bytes.
FILL = """
SELECT count(outbox_commit()) FROM generate_series(1, %s) n
WHERE outbox_begin(rpad('filler ' || gen_random_uuid(), %s, '.'), concurrency => 'optimistic')
"""
LONG, SHORT = 1000, 43
MUCH = 25000  # more than the dispatcher compacts in one step

WAITING = "SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND (state = 'retired' OR state = 'sealed')"
EMPTY = "SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND state = 'empty'"
QUIET = "SELECT count(*) FROM outbox.ring WHERE ring = 'record' AND state = 'quiet'"
CURRENT = "SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current'"
COMPACTED = "SELECT max(generation) FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'"
FULL = "SELECT pg_relation_size('outbox.record_' || segment) >= %s FROM outbox.ring WHERE ring = 'record' AND state = 'current'"


class Ring:
    def __init__(self, conninfo, retention):
        self.conninfo = conninfo
        self.retention = retention  # seconds
        self.done = {}  # how often each step was
        self.usual_time = 0.0005  # seconds that a claim takes that does not wait
        self.connect()

    def connect(self):
        """Waits for a server that is recovering."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.control = psycopg.connect(self.conninfo, autocommit=True)
                self.segment_size = int(self.value("SELECT setting FROM pg_settings WHERE name = 'outbox.record_segment_size'")) * 1024
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def is_connected(self):
        try:
            return self.value("SELECT true")
        except psycopg.OperationalError:
            return False

    def value(self, sql, *values):
        return self.control.execute(sql, values or None).fetchone()[0]

    def step(self, what):
        {
            "rotate": self.rotate,
            "compact": self.compact,
            "compact much": lambda: self.compact(MUCH),
            "expire": self.expire,
            "half expire": lambda: self.expire(0.5),
            "kill": self.kill,
        }[what]()
        self.done[what] = self.done.get(what, 0) + 1

    def calm(self, room=False):
        """Waits until all is done that is left from before; no worker is at work.

        With room for another segment that is quiet, without its being compacted.
        """
        for _ in range(ROUNDS):
            self.clean_up()
            if self.value(WAITING) == 0:
                if not room or self.value(QUIET) <= 3:
                    return
                self.compact()
            time.sleep(0.01)
        raise Stuck(f"segments of records stay sealed or retired: {self.states()}")

    def rotate(self):
        """Let records be written to another segment from now on: the fewer are empty, the more it takes."""
        before = self.value(CURRENT)
        for _ in range(ROUNDS):
            while not self.value(FULL, self.segment_size):
                self.control.execute(FILL, (120, LONG))
            self.clean_up()
            if self.value(CURRENT) != before:
                return
            if self.value(EMPTY) == 0 and self.value(WAITING) > 0:
                # Workers have old snapshots, so no segment can be emptied now. calm() checks afterwards that all are.
                return
            self.control.execute(FILL, (120, LONG))
        raise Stuck(f"the ring of records does not go on: {self.states()}")

    def compact(self, more=0):
        """Compact all segments that are not current, except those that workers write to."""
        before = self.value(COMPACTED)
        self.control.execute(FILL, (more, SHORT))
        for turn in range(ROUNDS):
            # Not more segments than it takes: none is emptied as long as workers have transactions.
            if self.value(QUIET) < 6:
                self.rotate()
            self.clean_up()
            if self.value(COMPACTED) != before:
                return
            time.sleep(0.01 if turn > 10 else 0)
        raise Stuck(f"nothing is compacted: {self.states()}")

    def expire(self, share=1.3):
        """Let what was sent before reach the end of its retention, or this share of it."""
        self.clean_up()
        until = time.monotonic() + share * self.retention
        while time.monotonic() < until:
            self.clean_up()
            time.sleep(0.05)
        self.clean_up()

    def kill(self):
        victim = Session(self.conninfo)
        os.kill(victim.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while self.is_connected():
            if time.monotonic() > deadline:
                raise Stuck("the server goes on after a process was killed")
            time.sleep(0.01)
        self.connect()
        victim.close()

    def clean_up(self):
        """Run one round of cleanup; there may be no dispatcher for a moment."""
        self.value("SELECT outbox_cleanup()")

    def terminate(self, pid):
        """Kills a worker's process, whatever it is doing."""
        deadline = time.monotonic() + PATIENCE
        self.value("SELECT pg_terminate_backend(%s)", pid)
        while self.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) > 0:
            if time.monotonic() > deadline:
                raise Stuck("a terminated process lives on")
            time.sleep(0.001)

    def is_blocked(self, pid, pids):
        return self.value("SELECT pg_isolation_test_session_is_blocked(%s, %s)", pid, pids)

    def states(self):
        rows = self.control.execute("SELECT ring, segment, state FROM outbox.ring WHERE state <> 'empty' ORDER BY 1, 2").fetchall()
        return ", ".join(f"{ring} {segment} {state}" for ring, segment, state in rows)
