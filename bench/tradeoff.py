"""What outbox.max_dispatch_delay trades: the callers' throughput at full speed, as a share of
the round-trip floor, and how long messages take to their stream meanwhile.
"""
from functools import partial

import load
import rivals
from delay import PAUSE_MS, probe
from servers import connect, forget_streams
from steps import QUICK, Step

LIMITS_MS = (1, 5, 20)


def steps(scale):
    """A quick run has no time for it."""
    for _ in range(0 if scale is QUICK else scale.rounds):
        for limit in LIMITS_MS:
            yield Step("outbox.max_dispatch_delay", str(limit), scale.samples * PAUSE_MS / 1000 + 2.5, partial(measure, limit, scale), say)


def say(figures):
    return f"{figures['outbox'] / figures['floor']:.2f} of the floor, p50 {figures['p50']:.0f} us, p99 {figures['p99']:.0f} us"


def measure(limit, scale):
    """The probe is one more caller, and looks for its messages all the time."""
    rivals.prepare(rivals.FLOOR)
    rivals.prepare(rivals.OUTBOX)
    forget_streams()
    set_limit(limit)
    try:
        floor = load.run(rivals.FLOOR, 1, "off").rate
        with rivals.at_work(rivals.OUTBOX, "off") as relay:
            callers = load.start(rivals.OUTBOX, scale.samples * PAUSE_MS / 1000 + 0.5, "off")
            figures = probe(rivals.OUTBOX, relay, scale.samples, 60, "pace")
            return {**figures, "outbox": load.finish(callers).rate, "floor": floor}
    finally:
        set_limit(None)


def set_limit(limit):
    with connect(rivals.OUTBOX.server) as connection:
        connection.execute(f"ALTER SYSTEM SET outbox.max_dispatch_delay = '{limit}ms'" if limit else "ALTER SYSTEM RESET outbox.max_dispatch_delay")
        connection.execute("SELECT pg_reload_conf()")
