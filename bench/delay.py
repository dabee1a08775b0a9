"""How long a message takes: from the return of the commit until a blocked XREAD has it.

Idle: the next message follows 10 ms after the arrival of the last one. Under load: callers
run at a share of the throughput that this rival reached just before, and a message
is sent every 10 ms beside them.

Beside the idle delay that of a flush and an XADD alone is measured, by the same program: what a
relay has to do that sends only what it has written down. A delay over that tells more of a relay
than of the disk and of how fast the machine wakes a process. It is no lower bound: a file is not
flushed as the WAL is.
"""
import subprocess
from functools import partial

import load
import rivals
from stats import percentile
from servers import FOLDER, SOCKET, conninfo, forget_streams
from steps import QUICK, Step
from throughput import wait_until_arrived

PAUSE_MS = 10
FIRST = 5
SHARE = 0.8
SHARES = (0.2, 0.5)  # of the throughput, for the plot
ALONE = "a flush and an XADD alone"
QUICK_RIVALS = (rivals.OUTBOX, rivals.POLLED, rivals.NOTIFIED)
RIVALS = (*QUICK_RIVALS, rivals.LOGICAL, rivals.PGQ, rivals.GRAPHILE, rivals.PG_BOSS)


def steps(scale):
    seconds = scale.samples * 0.012 + 0.5
    for _ in range(scale.rounds):
        yield Step("delay, idle", ALONE, seconds, partial(alone, scale), say)
        for rival in QUICK_RIVALS if scale is QUICK else RIVALS:
            yield Step("delay, idle", rival.title, seconds, partial(idle, rival, scale), say)
        for rival in (rivals.OUTBOX,) if scale is QUICK else QUICK_RIVALS:
            yield Step("delay, at 80 % of its throughput", rival.title, seconds + 2.5, partial(loaded, rival, SHARE, scale), say)
        if scale is not QUICK:
            for share in SHARES:
                yield Step(f"delay, at {share * 100:.0f} % of its throughput", rivals.OUTBOX.title, seconds + 2.5,
                           partial(loaded, rivals.OUTBOX, share, scale), say)


def say(figures):
    return f"p50 {figures['p50']:.0f} us, p99 {figures['p99']:.0f} us"


def alone(scale):
    """Two processes: one tells the other, which writes and flushes a page of a file where the servers have their data, and adds the message."""
    forget_streams()
    return delays(f"file:{FOLDER}/flushed", "", scale.samples, scale.samples * 0.015)


def idle(rival, scale):
    rivals.prepare(rival)
    forget_streams()
    with rivals.at_work(rival) as relay:
        return probe(rival, relay, scale.samples, scale.samples * 0.015)


def loaded(rival, share, scale):
    """The delay, and at which rate of transactions. No message is left to the next part."""
    rivals.prepare(rival)
    forget_streams()
    with rivals.at_work(rival, "off") as relay:
        full = load.run(rival, 1, "off")
        callers = load.start(rival, scale.samples * PAUSE_MS / 1000 + 0.5, "off", rate=share * full.rate)
        figures = probe(rival, relay, scale.samples, 60, "pace")
        done = load.finish(callers)
        wait_until_arrived(rival, relay, full.transactions + done.transactions, scale.patience)
        return {**figures, "rate": done.rate}


def probe(rival, relay, count, seconds, *pace):
    try:
        return delays(conninfo(rival.server, rival.database), rival.read("probe.sql"), count, seconds, *pace)
    finally:
        relay.check()


def delays(conninfo_or_file, statement, count, seconds, *pace):
    """The first messages do not count: the relay may still be starting."""
    command = [f"{rivals.PROGRAMS}/probe", conninfo_or_file, SOCKET, statement, str(count + FIRST), str(PAUSE_MS), str(seconds), *pace]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise rivals.CannotRun(done.stderr.strip())
    found = [float(line) for line in done.stdout.split()[FIRST:]]
    if not found:
        raise rivals.CannotRun("none of its messages was in Redis in time")
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "worst": max(found), "samples": len(found)}
