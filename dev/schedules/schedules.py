"""Plays schedules: orders in which workers, rotation, compaction, expiry and crashes can meet.

    schedules.py CONNINFO REDIS-SOCKET

Two or three workers process two messages, each in its own session; a message
may come to several of them. SQL is sent step by step in an order that plan.py
generates, as PostgreSQL's isolation tester does with an order that was written
down; but a worker that waits is left alone, and sessions can be killed. What
comes of it is compared with a rule (play.py), not with a recording.

    SCHEDULES=400        so many by chance, of all families
    SCHEDULES=all        each case in each order, but about SCHEDULES_BOUND (100) at most; where
                         there are more, so many by chance
    SCHEDULES_SEED=1     the same ones again
    SCHEDULES_ONLY=ring  only families with this in their name
"""

import collections
import os
import random
import sys
import time

import psycopg
import redis
from ring import Ring
from plan import Given, Random, families
from play import AGAIN, Play
from session import PATIENCE, Stuck

# Of a hundred random schedules, so many are of each family. And if all are
# wanted, this share of the bound is for each of its cases: for what takes long
# to play, or has many cases.
SHARES = {
    "two copies": (23, 2),
    "two messages": (14, 1),
    "three workers": (17, 0.3),
    "two waiters": (10, 1),
    "ring moves on": (25, 0.1),
    "is forgotten": (5, 0.2),
    "large segments": (2, 0.1),
    "server dies": (1, 0.1),
    "records expire": (3, 0.1),
}
EXPIRING = "records expire"
RETENTION = 1  # seconds, there; elsewhere nothing expires
SHOWN = 5  # faults in full
ENOUGH = 20  # faults are enough


class Schedules:
    def __init__(self, conninfo, redis_socket, generator):
        self.conninfo = conninfo
        self.redis = redis.Redis(unix_socket_path=redis_socket)
        self.generator = generator
        self.rings = {}
        self.pools = collections.defaultdict(list)
        self.played = collections.Counter()
        self.complete = collections.Counter()  # cases of which every order was played
        self.faulty = 0
        self.number = 0
        self.prepare()

    def prepare(self):
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            database = connection.info.dbname
            connection.execute("CREATE DATABASE expiring")
            connection.execute(f"ALTER DATABASE expiring SET outbox.retention = '{RETENTION} s'")
        for database, retention in ((database, 7 * 24 * 3600), ("expiring", RETENTION)):
            ring = Ring(psycopg.conninfo.make_conninfo(self.conninfo, dbname=database), retention)
            ring.control.execute("CREATE EXTENSION IF NOT EXISTS outbox")
            ring.control.execute("CREATE TABLE handled (message text)")
            ring.control.execute("CREATE INDEX ON handled (message)")
            ring.control.execute(AGAIN)
            ring.calm()
            self.rings[database == "expiring"] = ring

    def play(self, case, chooser):
        self.number += 1
        ring = self.rings[case.family == EXPIRING]
        pool = self.pools[case.family == EXPIRING]
        if case.ring:
            # As long as workers have transactions only one thing can be compacted.
            ring.calm(room=any("compact" in what for what in case.ring[1:]))
        play = Play(case, chooser, ring, pool, f"{self.number}")
        try:
            faults = play.play()
        except Stuck as stuck:
            faults = [*play.faults, str(stuck)]
            pool.clear()
        if "kill" in case.ring:
            self.recover()
        self.played[case.family] += 1
        if faults:
            self.faulty += 1
            if self.faulty <= SHOWN:
                print(f"FAULT in schedule {self.number}: {case}")
                print(*(f"    {line}" for line in play.story), sep="\n")
                print(*(f"  * {fault}" for fault in faults), sep="\n", flush=True)
            if self.faulty >= ENOUGH:
                sys.exit(f"{self.number} schedules, {self.faulty} against the rule: enough")

    def recover(self):
        """Ends all sessions."""
        self.pools.clear()
        for ring in self.rings.values():
            ring.connect()

    def by_chance(self, cases, n):
        for _ in range(n):
            case = self.generator.choice(cases)
            self.play(case, Random(self.generator, case))

    def each(self, cases, bound):
        """Plays all orders of each case, or half of the bound from one end and half at random."""
        for case in cases:
            choices = []
            for _ in range((bound + 1) // 2):
                given = Given(choices)
                self.play(case, given)
                choices = given.following()
                if choices is None:
                    self.complete[case.family] += 1
                    break
            else:
                self.by_chance([case], bound // 2)

    #
    # What is in Redis in the end, and in the records
    #
    def compare_books(self):
        wrong = []
        sent = collections.Counter()
        first = "-"
        for ring in self.rings.values():
            self.wait_until_sent(ring)
        while page := self.redis.xrange("out", min=first, count=1000):
            sent.update((fields[b"cause"].decode(), fields[b"body"].decode()) for _, fields in page)
            first = b"(" + page[-1][0]
        # Numbers of schedules differ, so the databases have no message in common.
        handled = collections.Counter()
        for ring in self.rings.values():
            rows = ring.control.execute("SELECT message, count(*) FROM handled GROUP BY 1").fetchall()
            handled.update({(message, message): n for message, n in rows})
            if ring.retention > RETENTION:
                double = ring.control.execute("SELECT msgid FROM outbox.records GROUP BY endpoint, msgid HAVING count(*) > 1")
                wrong += [f"{msgid} has more than one record" for (msgid,) in double.fetchall()]
        wrong += [
            f"{cause}: {handled[cause, body]} business rows, {sent[cause, body]} messages in Redis"
            for cause, body in sorted(handled.keys() | sent.keys())
            if handled[cause, body] != sent[cause, body]
        ]
        print(f"{sum(handled.values())} business rows, {sum(sent.values())} messages in Redis")
        for line in wrong[:SHOWN]:
            print("  *", line)
        return len(wrong)

    @staticmethod
    def wait_until_sent(ring):
        deadline = time.monotonic() + PATIENCE
        while ring.value("SELECT pending > 0 FROM outbox.status"):
            if time.monotonic() > deadline:
                raise Stuck("messages stay pending")
            time.sleep(0.05)


def main():
    conninfo, redis_socket = sys.argv[1:]
    seed = int(os.environ.get("SCHEDULES_SEED") or random.SystemRandom().randrange(1_000_000))
    wanted = os.environ.get("SCHEDULES") or "all"
    bound = int(os.environ.get("SCHEDULES_BOUND") or 100)
    only = os.environ.get("SCHEDULES_ONLY", "")
    print(f"SCHEDULES_SEED={seed}", flush=True)
    schedules = Schedules(conninfo, redis_socket, random.Random(seed))

    for family, cases in families().items():
        if only not in family:
            continue
        start = time.monotonic()
        if wanted == "all":
            schedules.each(cases, max(1, round(bound * SHARES[family][1])))
        else:
            schedules.by_chance(cases, max(1, int(wanted) * SHARES[family][0] // 100))
        played = schedules.played[family]
        complete = f", {schedules.complete[family]} in each order" if wanted == "all" else ""
        print(f"{family}: {played} schedules of {len(cases)} cases{complete}, {time.monotonic() - start:.1f} s", flush=True)

    wrong = schedules.compare_books()
    ring = collections.Counter()
    for each in schedules.rings.values():
        ring.update(each.done)
    print("the ring:", ", ".join(f"{what} {n}" for what, n in sorted(ring.items())))
    print(f"{schedules.number} schedules, {schedules.faulty} against the rule, {wrong} differences in the books")
    sys.exit(1 if schedules.faulty or wrong else 0)


if __name__ == "__main__":
    main()
