"""What a transaction writes to the WAL, everything that the server writes meanwhile included:
right after a checkpoint, when each page that is changed for the first time is written as a
whole, and when that is over.
"""
from functools import partial

import load
import rivals
from servers import forget_streams, sql, wal_position
from steps import QUICK, Step
from throughput import wait_until_arrived


def steps(scale):
    for _ in range(scale.rounds):
        for rival in (rivals.BUSINESS, rivals.OUTBOX, rivals.POLLED, *(() if scale is QUICK else (rivals.NSERVICEBUS, rivals.PGQ))):
            yield Step("WAL", rival.title, scale.transactions / 4000 + 0.5, partial(measure, rival, scale), say)


def say(figures):
    return f"{figures['after_checkpoint']:.0f} bytes after a checkpoint, {figures['later']:.0f} later"


def measure(rival, scale):
    """No message is left to the next part, whose books would not agree."""
    rivals.prepare(rival)
    forget_streams()
    with rivals.at_work(rival, "off") as relay:
        sql(rival.server, "postgres", "CHECKPOINT")
        first, sent = bytes_each(rival, scale.transactions)
        later, more = bytes_each(rival, scale.transactions)
        wait_until_arrived(rival, relay, sent + more, scale.patience)
        return {"after_checkpoint": first, "later": later}


def bytes_each(rival, transactions):
    """Returns also how many transactions there were."""
    before = wal_position(rival.server)
    done = load.run(rival, 1.5, "off", transactions=transactions)
    return (wal_position(rival.server) - before) / done.transactions, done.transactions
