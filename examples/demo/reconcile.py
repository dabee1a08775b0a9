#!/usr/bin/env python3
"""Compares two books that different systems keep.

    reconcile.py CONNINFO REDIS_URL STREAM [MESSAGES]

PostgreSQL has the balance of each account (at first 0) and, in pgbench_history,
a row for each incoming message that was processed, with its id as the filler.
Redis has an event for each change of a balance, with the id of the message that
caused it. MESSAGES is how many incoming messages there were, if that is known.

Exits with 0 if each message was processed once and caused one event, and each
balance is the sum of the events about its account; else with 1.
"""

import collections
import json
import sys
from dataclasses import dataclass, field

import psycopg
import redis

PAGE = 5000  # entries of the stream read at a time
SHOWN = 10  # examples of each kind of difference


@dataclass
class Event:
    id: str
    cause: str
    account: int
    delta: int


@dataclass
class Result:
    messages: int  # processed, says PostgreSQL
    events: int  # in the stream, says Redis
    accounts: int  # with a balance or an event
    never_processed: int = 0  # incoming messages that PostgreSQL knows nothing of
    processed_twice: list = field(default_factory=list)  # messages with more than one row
    lost: list = field(default_factory=list)  # messages processed without an event
    doubled: list = field(default_factory=list)  # events that were there before, by id or by cause
    ghosts: list = field(default_factory=list)  # events of a message that was not processed
    wrong_balances: list = field(default_factory=list)  # (account, balance, sum of its events)

    @property
    def agrees(self):
        return not (
            self.never_processed or self.processed_twice or self.lost
            or self.doubled or self.ghosts or self.wrong_balances
        )  # fmt: skip

    def verdict(self):
        lost = len(self.lost) + self.never_processed
        doubled = len(self.doubled) + len(self.processed_twice)
        return f"lost {lost}   doubled {doubled}"

    def facts(self):
        yield "messages processed", self.messages
        yield "events in the stream", self.events
        yield "accounts compared", self.accounts

    def details(self):
        """Lines that say what is wrong, with examples."""
        if self.never_processed:
            yield f"  {self.never_processed} incoming messages were never processed"
        kinds = {
            "messages were processed more than once": self.processed_twice,
            "messages were processed and have no event": self.lost,
            "events came more than once": self.doubled,
            "events have no processed message": self.ghosts,
            "accounts have a balance that is not the sum of their events": self.wrong_balances,
        }
        for what, cases in kinds.items():
            if cases:
                examples = ", ".join(map(str, cases[:SHOWN])) + (", ..." if len(cases) > SHOWN else "")
                yield f"  {len(cases)} {what}: {examples}"


def reconcile(conninfo, redis_url, stream, incoming=None):
    """Read both books and compare them."""
    rows, balances = read_postgres(conninfo)
    events = list(read_redis(redis_url, stream))
    return compare(rows, balances, events, incoming)


def compare(rows, balances, events, incoming=None):
    """Compare how often each message was processed, balances by account, and events."""
    ids = collections.Counter()
    causes = collections.Counter()
    sums = collections.Counter()
    doubled = []
    for event in events:
        if ids[event.id] or causes[event.cause]:
            doubled.append(event.id)
        ids[event.id] += 1
        causes[event.cause] += 1
        sums[event.account] += event.delta

    accounts = sorted(balances.keys() | sums.keys())
    return Result(
        messages=len(rows),
        events=len(events),
        accounts=len(accounts),
        never_processed=max(0, (incoming or 0) - len(rows)),
        processed_twice=[message for message, times in rows.items() if times > 1],
        lost=[message for message in rows if message not in causes],
        doubled=doubled,
        ghosts=[cause for cause in causes if cause not in rows],
        wrong_balances=[
            (account, balances.get(account, 0), sums[account])
            for account in accounts
            if balances.get(account, 0) != sums[account]
        ],
    )


def read_postgres(conninfo):
    """Return how many rows each message has, and each balance that is not 0."""
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows = collections.Counter(
            {message: times for message, times in connection.execute(
                "SELECT rtrim(filler), count(*) FROM pgbench_history GROUP BY filler"
            )}
        )
        balances = dict(connection.execute("SELECT aid, abalance FROM pgbench_accounts WHERE abalance <> 0"))
    return rows, balances


def read_redis(url, stream):
    """Yield the events of the stream in its order."""
    server = redis.Redis.from_url(url)
    first = "-"
    while entries := server.xrange(stream, min=first, count=PAGE):
        for _, fields in entries:
            body = json.loads(fields[b"body"])
            yield Event(fields[b"id"].decode(), fields.get(b"cause", b"").decode(), body["account"], body["delta"])
        first = b"(" + entries[-1][0]


def main(conninfo, redis_url, stream, incoming=None):
    result = reconcile(conninfo, redis_url, stream, int(incoming) if incoming else None)
    for name, value in result.facts():
        print(f"{name}: {value}")
    for line in result.details():
        print(line)
    print(result.verdict())
    return 0 if result.agrees else 1


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
