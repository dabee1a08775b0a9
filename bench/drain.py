"""How fast a backlog gets to Redis, beside XADD pipelined by a program that does nothing else.

The rate is that between the first arrival and the last. The outbox's backlog is
enqueued while everything is paused: windows are then opened at intervals, so that large
transactions make windows of 100,000 messages, and transactions of 50 messages at that pace make
windows of about 50.
"""
import subprocess
import time

import rivals
from servers import SOCKET, STREAM, connect, forget_streams, redis_server, run_file, sql, stream_length

LARGE, SMALL = 100_000, 50


def xadd(messages):
    forget_streams()
    program = subprocess.Popen([f"{rivals.PROGRAMS}/xadd", SOCKET, str(messages)])
    rate = watch(messages, 60)
    if program.wait() != 0:
        raise RuntimeError("xadd failed")
    return rate


def watch(messages, patience):
    """Returns the messages a second, from the first arrival to the last."""
    deadline = time.monotonic() + patience
    while (first := stream_length()) == 0:
        check(deadline)
        time.sleep(0.0005)
    start = time.monotonic()
    while (count := stream_length()) < messages:
        check(deadline)
        time.sleep(0.001)
    return (count - first) / (time.monotonic() - start)


def check(deadline):
    if time.monotonic() > deadline:
        raise rivals.CannotRun(f"its backlog was not in Redis in time; {stream_length()} messages were")


def rival(who, messages):
    """A backlog is there when its relay begins."""
    forget_streams()
    if who.slot:
        return logical(who, messages)
    fill(who, messages)
    with rivals.at_work(who):
        return watch(messages, 120)


def logical(who, messages):
    """The slot must be there before the messages are."""
    sql(who.server, who.database, "SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
    fill(who, messages)
    relay = rivals.Relay(who)
    try:
        return watch(messages, 120)
    finally:
        relay.stop()
        rivals.drop_slot(who)


def fill(who, messages):
    for first in range(1, messages + 1, LARGE):
        run_file(who.server, who.database, who.file("fill.sql"), first=first, last=min(first + LARGE - 1, messages))
    sql(who.server, "postgres", "CHECKPOINT")


def outbox(messages, window):
    """Returns the rate, and how many windows there were."""
    who = rivals.OUTBOX
    forget_streams()
    with connect(who.server, who.database) as connection:
        connection.execute("SELECT outbox_pause()")
        set_poll_interval(connection, "10ms")
        before = windows(connection)
        pause = 0.3 if window == LARGE else 0.011
        for first in range(1, messages + 1, window):
            start = time.monotonic()
            enqueue(connection, first, window)
            if window == LARGE:
                wait_for_window(connection, before)
            time.sleep(max(start + pause - time.monotonic(), 0))
        wait_for_window(connection, before)
        opened = windows(connection) - before
        connection.execute("CHECKPOINT")
        connection.execute("SELECT outbox_resume()")
        rate = watch(messages, 120)
        set_poll_interval(connection, None)
        return rate, opened


def enqueue(connection, first, count):
    connection.execute("SELECT outbox_enqueue_many(%s, array_agg('{\"type\": \"BalanceChanged\", \"account\": ' || i || ', \"delta\": -100}')) "
                       "FROM generate_series(%s::int, %s::int) i", (STREAM, first, first + count - 1))


def windows(connection):
    return connection.execute("SELECT windows FROM outbox.status").fetchone()[0]


def wait_for_window(connection, before):
    """Returns when what was enqueued belongs to a window."""
    time.sleep(0.05)


def set_poll_interval(connection, interval):
    connection.execute(f"ALTER SYSTEM SET outbox.poll_interval = '{interval}'" if interval else "ALTER SYSTEM RESET outbox.poll_interval")
    connection.execute("SELECT pg_reload_conf()")


def is_empty():
    return redis_server.xlen(STREAM) == 0
