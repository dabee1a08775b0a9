"""Callers beside a backlog that is sent: their throughput, and how long a transaction takes them.

In each round it is measured twice, without and with a backlog of many messages in windows
of 100,000, which the dispatcher sends meanwhile. BENCH_BACKLOG says of how many.
"""
import glob
import os
import time
from dataclasses import replace
from functools import partial

import drain
import load
import rivals
from stats import percentile
from servers import FOLDER, connect, forget_streams, stream_length
from steps import Step

LOG = FOLDER + "/callers"


def steps(scale):
    scale = replace(scale, backlog=int(os.environ.get("BENCH_BACKLOG", scale.backlog)))
    for _ in range(scale.rounds):
        yield Step("beside a backlog", "no backlog", scale.seconds + 1, partial(alone, scale), say)
        yield Step("beside a backlog", f"a backlog of {scale.backlog:,}", scale.seconds + 2 + scale.backlog / 150_000,
                   partial(beside_backlog, scale), say)


def say(figures):
    return f"{figures['rate']:.0f} transactions/s, p50 {figures['p50']:.0f} us, p99 {figures['p99']:.0f} us"


def alone(scale):
    rivals.prepare(rivals.OUTBOX)
    forget_streams()
    return callers(scale.seconds)


def beside_backlog(scale):
    """The backlog must last longer than the callers."""
    rival = rivals.OUTBOX
    rivals.prepare(rival)
    forget_streams()
    with connect(rival.server, rival.database) as connection:
        with drain.paused(connection):
            for first in range(1, scale.backlog + 1, drain.LARGE):
                drain.fill_window(connection, rival.read("fill.sql"), first, drain.LARGE)
            connection.execute("CHECKPOINT")
        start = time.monotonic()
        figures = callers(scale.seconds)
        figures["sent_meanwhile"] = stream_length()
        drain.wait_until(lambda: drain.pending(connection) == 0, patience=60 + scale.backlog / 50_000)
        return {**figures, "drained_after": time.monotonic() - start}


def callers(seconds):
    for path in glob.glob(LOG + ".*"):
        os.remove(path)
    done = load.run(rivals.OUTBOX, seconds, "off", log=LOG)
    delays = load.delays(LOG)
    return {"rate": done.rate, "p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99)}
