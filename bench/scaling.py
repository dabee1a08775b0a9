"""What several databases send together, to one Redis or to two. Each case has the same number
of messages, in backlogs of the same size; all dispatchers begin at the same moment.
"""
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import drain
import rivals
from servers import SECOND_SOCKET, SOCKET, connect, cpu_of, forget_streams, redis_at, redis_pid, sql, stream_length
from steps import QUICK, Step

PART = "several databases"
MESSAGES = 200_000  # of all databases of a case
WINDOW = 50_000
SOCKETS = (SOCKET, SECOND_SOCKET)
CASES = ((1, 1), (2, 1), (4, 1), (2, 2))  # databases, Redis


def steps(scale):
    """A quick run has no time for it."""
    for _ in range(0 if scale is QUICK else scale.rounds):
        for databases, servers in CASES:
            yield Step(PART, name(databases, servers), 4, partial(measure, databases, servers), say)


def name(databases, servers):
    return f"{databases} database{'s' if databases > 1 else ''}, {servers} Redis"


def say(figures):
    return f"{figures['rate']:.0f} messages/s, of a core: dispatchers {figures['dispatchers']:.2f}, Redis {figures['redis']:.2f}"


def measure(databases, servers):
    ours = [prepared(number, number % servers) for number in range(databases)]
    sockets = SOCKETS[:servers]
    for socket in sockets:
        forget_streams(socket)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(rival.server, rival.database)) for rival in ours]
        for connection, rival in zip(connections, ours):
            stack.enter_context(drain.paused(connection))
            for first in range(1, MESSAGES // databases + 1, WINDOW):
                drain.fill_window(connection, rival.read("fill.sql"), first, WINDOW)
        drain.wait_until_in_windows(connections[0])
        connections[0].execute("CHECKPOINT")
        return send(connections, [pid for rival in ours for pid in rivals.Relay(rival).pids()], sockets)


def prepared(number, server):
    """A database that sends to one of the Redis."""
    rival = replace(rivals.OUTBOX, database=f"scaling_{number}_{server}")
    if rival.database in rivals.prepared:
        return rival
    rivals.prepare(rival)
    if server > 0:
        sql(rival.server, "postgres", f"ALTER DATABASE {rival.database} SET outbox.redis_url = 'unix://{SOCKETS[server]}'")
        drain.wait_until(lambda: redis_at(SOCKETS[server]).keys("outbox:lease:*"))
    return rival


def send(connections, dispatchers, sockets):
    """Returns the messages a second, and how busy the processes were."""
    redis = [redis_pid(socket) for socket in sockets]
    before, before_redis, start = cpu_of(dispatchers), cpu_of(redis), time.monotonic()
    for connection in connections:
        connection.execute("SELECT outbox_resume()")
    drain.wait_until(lambda: sum(map(stream_length, sockets)) >= MESSAGES)
    seconds = time.monotonic() - start
    return {"rate": MESSAGES / seconds, "dispatchers": (cpu_of(dispatchers) - before) / 1e6 / seconds,
            "redis": (cpu_of(redis) - before_redis) / 1e6 / seconds}
