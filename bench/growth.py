"""What grows, and who notices: the callers' throughput as a share of the round-trip floor's, the
CPU of dispatcher and Redis for a message, the WAL of a transaction, and the delay of a
message on an idle server, with ten and a hundred times as much of one thing. Floor and
outbox run one right after the other, in turn the one and the other first.
"""
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable

import load
import rivals
from delay import probe
from drain import LARGE, fill, pending, wait_until
from servers import connect, cpu_of, create_database, forget_streams, redis_pid, sql, wal_position
from steps import QUICK, Step

SECONDS = 1
SAMPLES = 30    # messages whose delay is measured in a round
SETTLED = """SELECT count(*) = 0 FROM outbox.ring WHERE ring <> 'log' AND
    (state IN ('sealed', 'filling', 'retired') OR compacted_into IS NOT NULL OR state = 'quiet' AND published_at IS NULL)"""


@dataclass(frozen=True)
class Thing:
    name: str
    base: int           # how many there are before it grows
    grow: Callable      # (rival, from, to)
    caller: str = "caller.sql"
    seconds: float = 0  # that growing may take, all of it
    quick: bool = False
    sends: bool = True  # while it is measured


def grow_history(rival, have, want):
    """Ids of processed messages; compacted, as most of them are at any time."""
    with connect(rival.server, rival.database) as connection:
        for first in range(have, want, 1000):
            connection.execute("SELECT count(*) FROM generate_series(%s::int, %s::int) i "
                               "WHERE outbox_begin('old-' || i) IS NULL OR outbox_commit() IS NULL", (first, min(first + 1000, want) - 1))
        deadline = time.monotonic() + 30
        while not connection.execute(SETTLED).fetchone()[0] and time.monotonic() < deadline:
            time.sleep(0.1)


def grow_backlog(rival, have, want):
    """Messages that wait, for everything is paused."""
    sql(rival.server, rival.database, "SELECT outbox_pause()")
    for first in range(have + 1, want + 1, LARGE):
        fill(rival, first, min(first + LARGE - 1, want))


def grow_destinations(rival, have, want):
    """Callers write to all of them by chance; nothing has to be made."""


def grow_endpoints(rival, have, want):
    sql(rival.server, rival.database, "SELECT count(outbox_create_endpoint('endpoint-' || i)) FROM generate_series(%s::int, %s::int) i",
        have + 1, want)


def grow_clients(rival, have, want):
    """pgbench is told how many."""


def grow_databases(rival, have, want):
    """Each has a dispatcher, which is idle."""
    for number in range(have, want - (have == 0)):
        create_database(rival.server, f"neighbor{number}")
        sql(rival.server, f"neighbor{number}", "CREATE EXTENSION outbox")


THINGS = (
    Thing("ids remembered", 10_000, grow_history, seconds=30),
    Thing("messages pending", 10_000, grow_backlog, seconds=12, sends=False),
    Thing("destinations", 10, grow_destinations, "destinations.sql", quick=True),
    Thing("endpoints", 10, grow_endpoints, "endpoints.sql"),
    Thing("clients", 1, grow_clients),
    Thing("databases", 1, grow_databases, seconds=25),
)


def steps(scale):
    for thing in THINGS:
        if scale is QUICK and not thing.quick:
            continue
        rival = replace(rivals.OUTBOX, database="growth_" + thing.name.replace(" ", "_"), caller=thing.caller)
        have = 0
        for factor in scale.factors:
            want = thing.base * factor
            for number in range(scale.rounds):
                grows = thing.seconds * factor / scale.factors[-1] if number == 0 else 0
                yield Step(f"growth: {thing.name}", str(want), 2 * SECONDS + (0.5 + SAMPLES * 0.015 if thing.sends else 0.5) + grows,
                           partial(measure, thing, rival, have if number == 0 else want, want, number), say)
            have = want
        yield Step(f"growth: {thing.name}", "end", 1, partial(leave, rival), lambda figures: "cleaned up")


def say(figures):
    text = f"{figures['outbox']:.0f} transactions/s, {figures['outbox'] / figures['floor']:.2f} of the floor"
    return text + (f", CPU of the dispatcher {figures['relay_cpu']:.2f} us, idle p50 {figures['p50']:.0f} us" if "p50" in figures else "")


def measure(thing, rival, have, want, number):
    rivals.prepare(rival)
    rivals.prepare(rivals.FLOOR)
    if have < want:
        thing.grow(rival, have, want)
        sql(rival.server, "postgres", "CHECKPOINT")
    clients = want if thing.name == "clients" else load.CLIENTS
    options = {"seconds": SECONDS + clients // 50,  # connecting takes time, too
               "synchronous": "off", "clients": clients, "variables": [("number_of", want)]}
    figures = {}
    for one in [rivals.FLOOR, rival] if number % 2 == 0 else [rival, rivals.FLOOR]:
        figures |= measure_outbox(thing, rival, options) if one is rival else {"floor": load.run(one, **options).rate}
    return figures


def measure_outbox(thing, rival, options):
    wal = wal_position(rival.server)
    if not thing.sends:
        done = load.run(rival, **options)
        return {"outbox": done.rate, "wal": (wal_position(rival.server) - wal) / done.transactions}
    forget_streams()
    relay = rivals.Relay(rival)
    pids, redis = relay.pids(), [redis_pid()]
    at_relay, at_redis = cpu_of(pids), cpu_of(redis)
    done = load.run(rival, **options)
    wait_until_sent(rival)
    figures = {"outbox": done.rate, "wal": (wal_position(rival.server) - wal) / done.transactions,
               "relay_cpu": (cpu_of(pids) - at_relay) / done.transactions, "redis_cpu": (cpu_of(redis) - at_redis) / done.transactions}
    return {**figures, "p50": probe(rival, relay, SAMPLES, SAMPLES * 0.1)["p50"]}


def wait_until_sent(rival):
    with connect(rival.server, rival.database) as connection:
        wait_until(lambda: pending(connection) == 0)


def leave(rival):
    """What is left of a thing shall not be in the way of the next."""
    with connect(rival.server) as connection:
        names = [name for name, in connection.execute("SELECT datname FROM pg_database WHERE datname ~ '^(growth|neighbor)'")]
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    forget_streams()
    rivals.prepared.discard(rival.database)
