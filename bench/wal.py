"""What a transaction writes to the WAL, everything that the server writes meanwhile included:
right after a checkpoint, when each page that is changed for the first time is written as a
whole, and when that is over.
"""
from functools import partial

import load
import rivals
from servers import sql, wal_position
from steps import Step

TRANSACTIONS = 10_000


def steps(scale):
    for _ in range(scale.rounds):
        for rival in (rivals.BUSINESS, rivals.FLOOR, rivals.OUTBOX, rivals.POLLED, rivals.NSERVICEBUS, rivals.PGQ, rivals.LOGICAL):
            yield Step("WAL", rival.title, 5, partial(measure, rival), say)


def say(figures):
    return f"{figures['after_checkpoint']:.0f} bytes after a checkpoint, {figures['later']:.0f} later"


def measure(rival):
    rivals.prepare(rival)
    with rivals.at_work(rival, "off"):
        sql(rival.server, "postgres", "CHECKPOINT")
        first = bytes_each(rival)
        return {"after_checkpoint": first, "later": bytes_each(rival)}


def bytes_each(rival):
    before = wal_position(rival.server)
    done = load.run(rival, 1.5, "off", transactions=TRANSACTIONS)
    return (wal_position(rival.server) - before) / done.transactions
