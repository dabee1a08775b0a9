"""How fast a backlog gets to Redis, beside XADD pipelined by a program that does nothing else.

The clock runs from the start of the relay, or from the end of the pause, until the last
message is there. The outbox's backlog is enqueued while everything is paused: windows are
opened at intervals then, so that transactions of 100,000 messages make windows of 100,000, and
transactions of 50 that follow each other at the pace of these intervals make windows of about 50.
"""
import subprocess
import time
from functools import partial

import rivals
from servers import SOCKET, connect, cpu_of, forget_streams, redis_pid, run_file, sql, stream_length
from steps import QUICK, Step

LARGE, SMALL = 100_000, 50
INTERVAL_MS = 10  # the shortest that outbox.poll_interval allows


def steps(scale):
    small = scale.drain // 4  # enough that the start of sending does not count for more than with large windows
    for _ in range(scale.rounds):
        yield Step("drain", "XADD, pipelined", 1, partial(xadd, scale.drain), say)
        yield Step("drain", "outbox, windows of 100,000", 1 + scale.drain / 120_000, partial(outbox, scale.drain, LARGE), say)
        yield Step("drain", "outbox, windows of about 50", 1 + small / SMALL * 0.012, partial(outbox, small, SMALL), say)
        for rival in (rivals.POLLED, rivals.PGQ, rivals.LOGICAL, *(() if scale is QUICK else (rivals.GRAPHILE, rivals.PG_BOSS))):
            messages = scale.drain // 30 if rival.slow else scale.drain
            yield Step("drain", rival.title, 1 + messages / (4000 if rival.slow else 80_000), partial(backlog_of, rival, messages), say)


def say(figures):
    return f"{figures['rate']:.0f} messages/s, CPU of the relay {figures['relay_cpu']:.2f} us, of Redis {figures['redis_cpu']:.2f} us"


def xadd(messages):
    forget_streams()
    clock = Clock()
    program = subprocess.Popen([f"{rivals.PROGRAMS}/xadd", SOCKET, str(messages)])
    figures = clock.watch(messages, lambda: [program.pid])
    if program.wait() != 0:
        raise rivals.CannotRun("xadd failed")
    return figures


class Clock:
    """Runs from here until all messages have arrived; counts the CPU of Redis and of some processes, which may be new."""

    def __init__(self, old=()):
        self.redis = [redis_pid()]
        self.before, self.before_redis = cpu_of(old), cpu_of(self.redis)
        self.start = time.monotonic()

    def watch(self, messages, pids, patience=60):
        """Returns the messages a second, and the microseconds of CPU that each took."""
        deadline = time.monotonic() + patience
        while stream_length() < messages:
            be_patient(deadline)
        seconds = time.monotonic() - self.start
        return {"rate": messages / seconds, "relay_cpu": (cpu_of(pids()) - self.before) / messages,
                "redis_cpu": (cpu_of(self.redis) - self.before_redis) / messages}


def be_patient(deadline):
    if time.monotonic() > deadline:
        raise rivals.CannotRun(f"its backlog was not in Redis in time, only {stream_length()} messages were")
    time.sleep(0.001)


def backlog_of(rival, messages):
    """The backlog is there when the relay begins; but a slot must be there before it."""
    rivals.prepare(rival)
    forget_streams()
    with rivals.slot_of(rival):
        for first in range(1, messages + 1, LARGE):
            fill(rival, first, min(first + LARGE - 1, messages))
        sql(rival.server, "postgres", "CHECKPOINT")
        # A table that was analyzed while it was empty is read by a plan that never ends.
        sql(rival.server, rival.database, "ANALYZE")
        clock = Clock()
        with rivals.relay_of(rival) as relay:
            return clock.watch(messages, relay.pids)


def fill(rival, first, last):
    """One transaction enqueues these messages."""
    run_file(rival.server, rival.database, rival.file("fill.sql"), first=first, last=last)


def outbox(messages, size):
    """Returns the rate, and how many messages were in a window on average."""
    rival = rivals.OUTBOX
    rivals.prepare(rival)
    forget_streams()
    with connect(rival.server, rival.database) as connection, paused(connection):
        for first in range(1, messages + 1, size):
            fill_window(connection, rival.read("fill.sql"), first, size)
        wait_until_in_windows(connection)
        windows = count_windows(connection)
        connection.execute("CHECKPOINT")
        dispatcher = rivals.Relay(rival).pids()
        clock = Clock(dispatcher)
        connection.execute("SELECT outbox_resume()")
        return {**clock.watch(messages, lambda: dispatcher), "window": messages / windows}


class paused:
    """Nothing is sent, and windows are opened as often as can be."""

    def __init__(self, connection):
        self.connection = connection

    def __enter__(self):
        wait_until(lambda: pending(self.connection) == 0)
        self.connection.execute("SELECT outbox_pause()")
        self.connection.execute(f"ALTER SYSTEM SET outbox.poll_interval = {INTERVAL_MS}")
        self.connection.execute("SELECT pg_reload_conf()")

    def __exit__(self, *exception):
        self.connection.execute("SELECT outbox_resume()")
        self.connection.execute("ALTER SYSTEM RESET outbox.poll_interval")
        self.connection.execute("SELECT pg_reload_conf()")


def fill_window(connection, statement, first, size):
    """Enqueues the messages of a window; the next transaction belongs to another one."""
    start, before = time.monotonic(), count_windows(connection)
    connection.execute(statement.replace(":first", str(first)).replace(":last", str(first + size - 1)))
    if size == LARGE:
        wait_until(lambda: count_windows(connection) > before)
    time.sleep(max(start + INTERVAL_MS / 1000 + 0.001 - time.monotonic(), 0))


def wait_until_in_windows(connection):
    """The dispatcher has looked twice since the last commit."""
    time.sleep(10 * INTERVAL_MS / 1000)


def count_windows(connection):
    return connection.execute("SELECT windows FROM outbox.status").fetchone()[0]


def pending(connection):
    return connection.execute("SELECT pending FROM outbox.status").fetchone()[0]


def wait_until(condition, patience=60):
    deadline = time.monotonic() + patience
    while not condition():
        be_patient(deadline)
