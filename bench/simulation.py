#!/usr/bin/env python3
"""A year of failures in 1,000 databases and 100 Redis, by chance: what is repeated, late, or lost.

    simulation.py [--seed 1] [--shards 1000] [--masters 100] [--rate 1000] [--years 1]

Each shard is a database with its standby, each master a Redis with its replica; a shard
sends --rate messages a second to one master. Each kind of failure happens at the rate
that RATES says, independently of all others; what it does follows from the promises of
docs/guarantees.md. Not a test of the code: of what the promises come to. With several
--years, numbers are those of a year on average.
"""

import argparse
import dataclasses
import random

YEAR = 365.25 * 86400

# How often a year, for each server.
RATES = {
    "crash of PostgreSQL": 1.0,
    "loss of a database server": 0.1,
    "switchover of PostgreSQL": 6.0,
    "network between a shard and Redis": 0.5,
    "loss of a Redis server": 0.1,
    "switchover of Redis": 6.0,
    "a master cut off with some shards": 0.05,
    "a group of consumers down": 2.0,
}
RESTART = 5, 60  # seconds, at least and at most, until PostgreSQL has recovered
FAILOVER = 30, 60  # ... until a standby has been promoted
SWITCHOVER = 2, 10
REDIS_FAILOVER = 10, 30  # ... until a replica is the master
CUT = 20, 600  # ... that a network is cut
LEASE = 10  # seconds; docs/guarantees.md
REBUILD = 3600  # seconds without a second copy
REPLICA_LAG = 0.05  # seconds on average that a replica of Redis is behind
STANDBY_LAG = 0.1  # ... an asynchronous standby
ARCHIVE_LAG = 60  # seconds that a backup is behind
READ_AFTER = 0.5  # seconds until consumers have read an entry
GROUP_DOWN = 1800  # seconds that a group of consumers is down, on average


@dataclasses.dataclass
class Setup:
    """How the servers are configured."""

    name: str
    synchronous: bool = True  # PostgreSQL commits on a standby
    replica: bool = True  # each Redis has one
    cut_off_writes: float = 10  # seconds for which a master without its replica takes writes: min-replicas-max-lag
    replay_window: float = 600
    takeover_delay: float = 30


SETUPS = (
    Setup("as recommended"),
    Setup("standbys asynchronous", synchronous=False),
    Setup("no min-replicas-to-write", cut_off_writes=60),
    Setup("no replica of Redis", replica=False),
)


class Year:
    """What happens with a setup; of several years together."""

    def __init__(self, setup, options):
        self.setup, self.rate, self.time = setup, options.rate, options.years * YEAR
        self.shards_each = options.shards // options.masters
        self.chance = random.Random(options.seed)
        self.again = self.seen_twice = self.lost = self.ghosts = self.commits_lost = 0
        self.down, self.late, self.failures = [0.0] * options.shards, 0.0, 0
        for shard in range(options.shards):
            self.live_shard(shard)
        for _ in range(options.masters):
            self.live_master()

    def happens(self, what):
        """When it happens."""
        moment = self.chance.expovariate(RATES[what] / YEAR)
        while moment < self.time:
            self.failures += 1
            yield moment
            moment += self.chance.expovariate(RATES[what] / YEAR)

    def within(self, limits):
        return self.chance.uniform(*limits)

    def live_shard(self, shard):
        for _ in self.happens("crash of PostgreSQL"):
            self.stand_still(shard, self.within(RESTART), 0)
        for _ in self.happens("switchover of PostgreSQL"):
            self.stand_still(shard, self.within(SWITCHOVER), 0)
        for _ in self.happens("network between a shard and Redis"):
            self.late += self.within(CUT)
        broken = -YEAR
        for moment in self.happens("loss of a database server"):
            self.stand_still(shard, self.within(FAILOVER), LEASE + self.setup.takeover_delay)
            if moment < broken + REBUILD:
                self.lose_commits(ARCHIVE_LAG)
            elif not self.setup.synchronous:
                self.lose_commits(self.chance.expovariate(1 / STANDBY_LAG))
            broken = moment

    def stand_still(self, shard, callers, dispatcher):
        self.down[shard] += callers
        self.late += callers + dispatcher

    def lose_commits(self, seconds):
        """The database goes back: what it had sent since is in Redis without its transaction."""
        self.commits_lost += seconds * self.rate
        self.ghosts += max(0, seconds - 0.01) * self.rate

    def live_master(self):
        outages = [(moment, self.chance.expovariate(1 / GROUP_DOWN)) for moment in self.happens("a group of consumers down")]
        for _ in self.happens("switchover of Redis"):
            self.late += self.within(SWITCHOVER) * self.shards_each
        broken = -YEAR
        for moment in self.happens("loss of a Redis server"):
            self.late += self.within(REDIS_FAILOVER) * self.shards_each
            if not self.setup.replica or moment < broken + REBUILD:
                self.lose_entries(moment, moment, outages)
            else:
                self.lose_entries(moment, self.chance.expovariate(1 / REPLICA_LAG), outages)
            broken = moment
        for moment in self.happens("a master cut off with some shards"):
            if self.setup.replica:
                self.lose_entries(moment, self.setup.cut_off_writes, outages)
            self.late += self.within(CUT) * self.shards_each

    def lose_entries(self, moment, seconds, outages):
        """Redis loses what it took last: the log has its newest part, and consumers had read its oldest."""
        behind = READ_AFTER
        for begin, length in outages:
            if begin <= moment < begin + length:
                behind = moment - begin
        rate = self.rate * self.shards_each
        again = min(seconds, self.setup.replay_window)
        self.again += again * rate
        self.seen_twice += max(0, again - behind) * rate
        self.lost += max(0, min(seconds, behind) - again) * rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"seed": 1, "shards": 1000, "masters": 100, "rate": 1000, "years": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(f"{options.shards * options.rate * YEAR:.2g} messages a year")
    for setup in SETUPS:
        year, each = Year(setup, options), options.shards * options.years
        down, late, worst = sum(year.down) / each, year.late / each, max(year.down) / options.years
        counts = [f"{number / options.years:,.0f}" for number in
                  (year.failures, year.again, year.seen_twice, year.lost, year.commits_lost, year.ghosts)]
        print(f"{setup.name}: {counts[0]} failures")
        print(f"  callers could not commit: {down / 60:.1f} minutes of a shard, {worst / 60:.1f} of the worst "
              f"({100 * (1 - down / YEAR):.5f} % available)")
        print(f"  messages were late by more than a second: {late / 60:.1f} minutes of a shard")
        print(f"  sent again: {counts[1]}, of which consumers had read {counts[2]}")
        print(f"  lost in Redis before they were read, and no longer in the log: {counts[3]}")
        print(f"  transactions that PostgreSQL lost: {counts[4]}, of which messages had been sent: {counts[5]}")


main()
