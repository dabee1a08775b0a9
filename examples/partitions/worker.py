#!/usr/bin/env python3
"""Works on the partitions of a stream, beside others of the same group.

    worker.py URL-OF-POSTGRESQL URL-OF-REDIS STREAM GROUP NAME [LEASE [PAUSE]]

The URL of a Redis Cluster is redis+cluster://host:port,host:port,… with some of its nodes.
To be run in the folder of lease.lua, which says who works on which partition. GROUP is
an endpoint of the database; NAME tells this worker from the others. One that was not
heard of for LEASE ms (10000) loses its partitions to the others. PAUSE (0) is how many
ms the handler takes.

Messages of one key are handled in their order, and each counts once, also when workers
are killed or stopped and go on later: see docs/consumers.md. Any error that is not
expected ends the program; let it be started again.
"""

import contextlib
import dataclasses
import json
import logging
import re
import signal
import sys
import time
import urllib.parse
import uuid

import psycopg
import redis
import redis.cluster

BATCH = 50  # entries in one transaction, at most
BLOCK = 1000  # ms to wait for entries
READ_AGAIN = 3_600_000  # ms to go back in a stream that has lost entries: less than the endpoint's retention
POLL = 0.02  # seconds until the next look where no command waits for all entries
POISON = (ValueError, KeyError, TypeError, psycopg.DataError, psycopg.IntegrityError)


class Lost(Exception):
    """Another worker has taken the partition."""


def connect(url):
    """Return a client of a single Redis, or of a cluster. Both have the commands that we need."""
    options = {"decode_responses": True, "encoding_errors": "surrogateescape"}
    cluster = re.fullmatch(r"(rediss?)\+cluster://(.*@)?([^/?]+)(.*)", url)
    if not cluster:
        return redis.Redis.from_url(url, **options)
    scheme, login, hosts, rest = cluster.groups(default="")
    first, *others = hosts.split(",")
    nodes = [redis.cluster.ClusterNode(at.hostname, at.port or 6379) for at in (urllib.parse.urlsplit(f"//{host}") for host in others)]
    logging.getLogger("redis").setLevel(logging.CRITICAL)  # it writes down each answer that names another node
    return redis.RedisCluster(url=f"{scheme}://{login}{first}{rest}", startup_nodes=nodes, **options)


@dataclasses.dataclass
class Position:
    """How far a partition is; the columns of its row in consumer_position."""

    partition: int
    token: int
    epoch: int
    entry: str
    message: str

    def verify(self, entries):
        """Return the entries behind the position, if the entry there is still the one that was processed.

        If not, Redis has lost its newest entries, or the stream was trimmed. What comes again
        may have smaller ids than the position, so the stream is to be read again from before it.
        """
        if self.message is None:
            return entries
        if entries and entries[0][0] == self.entry and message_id(entries[0]) == self.message:
            return entries[1:]
        self.entry = f"{max(int(self.entry.split('-')[0]) - READ_AGAIN, 0)}-0"
        self.message = None
        return None


class Layouts:
    """The layouts that a stream has had: over how many partitions it was spread, and where each earlier one ends.

    The partition -1 is the stream itself: databases in which it has no partitions write to it, whatever others do.
    """

    def __init__(self):
        self.of = {}  # by epoch: partitions, and the last entries of those before
        self.told = self.newest = 0  # in Redis, and that we know

    def learn(self, fields):
        """From the fields of the key in which the outbox tells them. What Redis has lost meanwhile still counts."""
        for name, value in fields.items():
            if name.startswith("past:"):
                count, former, *ends = value.split()
                self.add(int(name[5:]), int(count), int(former), dict(enumerate(ends, start=-1)))
        if "epoch" in fields:
            ends = {int(name[4:] or -1): end for name, end in fields.items() if name.startswith("end")}
            self.add(int(fields["epoch"]), int(fields["partitions"]), int(fields["former"]), ends)
        self.told = int(fields.get("epoch", 0))
        self.newest = max(self.of, default=0)

    def add(self, epoch, count, former, ends):
        self.of[epoch] = count, former, {partition: number(end) for partition, end in ends.items() if end != "-"}

    def span(self, reached):
        """The partitions of the layouts from this epoch on: the first, and the one behind the last.

        If Redis has lost the newest layout, we have reached more than it tells.
        """
        reached = min(reached, self.newest)
        counts = [count for epoch, (count, _, _) in self.of.items() if epoch >= reached]
        if self.of and reached < min(self.of):
            counts.append(self.of[min(self.of)][1])  # before the first change
        return -1, max(counts, default=0)

    def epoch_of(self, position, entry):
        """The epoch of an entry behind the position."""
        epoch = position.epoch
        for later in sorted(self.of):
            if later > epoch:
                ends = self.of[later][2]
                if number(entry) <= ends.get(position.partition, (0, 0)):
                    break
                epoch = later
        return epoch


def number(entry):
    return tuple(map(int, entry.split("-")))


def message_id(entry):
    """The id that tells a message from others, whatever has been added to the stream."""
    return entry[1].get("id", entry[0]).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


class Worker:
    def __init__(self, conninfo, url, stream, group, name, lease="10000", pause="0"):
        self.stream, self.group, self.name = stream, group, f"{name}:{uuid.uuid4()}"
        self.lease_time, self.pause = int(lease), int(pause)
        self.server = connect(url)
        with open("lease.lua") as file:
            self.lease_script = file.read()
        # A worker that is stopped within a transaction must not hold its partition forever.
        self.database = psycopg.connect(conninfo, autocommit=True, client_encoding="utf8")
        self.database.execute(f"SET idle_in_transaction_session_timeout = {self.lease_time}")
        self.layouts = Layouts()
        self.reached = 0  # all partitions have reached this epoch
        self.positions = {}
        self.size = 1  # entries in one transaction, so that it takes a third of a lease at most
        self.layout_key = f"outbox:partitions:{stream}"
        self.next_lease = 0
        self.stopping = False

    def run(self):
        self.read_layouts()
        while not self.stopping:
            self.lease()
            known = self.layouts.newest
            for position, entries in self.read():
                self.lease()
                try:
                    if self.positions.get(position.partition) is position:
                        self.advance(position, entries, known)
                except Lost:
                    print("lost", position.partition, flush=True)
                    self.positions.pop(position.partition, None)
        self.call_lease(0)

    def lease(self):
        """Renew the lease in good time, and take the partitions that are ours from now on."""
        if time.monotonic() < self.next_lease:
            return
        self.next_lease = time.monotonic() + self.lease_time / 3000
        self.learn(self.server.hget(self.layout_key, "epoch"))
        ours = self.call_lease(self.lease_time)
        for partition in set(self.positions) - set(ours):
            del self.positions[partition]
        for partition in set(ours) - set(self.positions):
            self.take(partition)

    def call_lease(self, time):
        keys = [f"{{{self.group}:{self.stream}}}:{what}" for what in ("workers", "partitions")]  # in one hash slot
        return self.server.eval(self.lease_script, len(keys), *keys, self.name, time, *self.layouts.span(self.reached))

    def learn(self, epoch):
        if int(epoch or 0) != self.layouts.told:
            self.read_layouts()
        if self.reached < self.layouts.newest:
            self.reach()

    def read_layouts(self):
        """Each partition of a new layout has a row before anything of that layout is processed."""
        self.layouts.learn(self.server.hgetall(self.layout_key))
        self.reach()
        self.database.execute(
            "INSERT INTO consumer_position (consumers, stream, partition, epoch) "
            "SELECT %s, %s, p, %s FROM generate_series(%s, %s - 1) p ON CONFLICT DO NOTHING",
            (self.group, self.stream, self.reached, *self.layouts.span(self.reached)),
        )

    def reach(self):
        """Find out which epoch all partitions have reached, of those that are still to be read."""
        while True:
            (epoch,) = self.database.execute(
                "SELECT min(epoch) FROM consumer_position WHERE consumers = %s AND stream = %s AND partition >= %s AND partition < %s",
                (self.group, self.stream, *self.layouts.span(self.reached)),
            ).fetchone()
            if epoch is None or epoch <= self.reached:
                break
            self.reached = epoch

    def take(self, partition):
        """Raise the token. While the transaction of a predecessor is open, try again later."""
        row = self.database.execute(
            "UPDATE consumer_position SET token = token + 1 WHERE (consumers, stream, partition) IN "
            "(SELECT consumers, stream, partition FROM consumer_position "
            "WHERE consumers = %s AND stream = %s AND partition = %s FOR UPDATE SKIP LOCKED) "
            "RETURNING partition, token, epoch, entry, message",
            (self.group, self.stream, partition),
        ).fetchone()
        if row:
            self.positions[partition] = Position(*row)

    def read(self):
        """Return partitions of ours and their entries, after waiting for some if there are none.

        The epoch is read after the entries: so no entry is of a layout that we do not know.
        A partition that has reached a layout waits until all others have.
        """
        positions = [position for position in self.positions.values() if min(position.epoch, self.layouts.newest) <= self.reached]
        with self.server.pipeline(transaction=False) as pipe:
            for position in positions:
                pipe.xrange(self.key_of(position), position.entry, "+", BATCH + 1)
            answers = pipe.execute()
        self.learn(self.server.hget(self.layout_key, "epoch"))
        found = [(position, position.verify(entries)) for position, entries in zip(positions, answers)]
        if all(entries == [] for _, entries in found):
            self.wait(positions)
        return [(position, entries) for position, entries in found if entries is not None]

    def key_of(self, position):
        return self.stream if position.partition < 0 else f"{self.stream}:{position.partition}"

    def wait(self, positions):
        """Wait for entries; in a cluster, where their streams are on several nodes, for a moment only."""
        is_single = isinstance(self.server, redis.Redis)
        if is_single and len(positions) == len(self.positions) > 0:
            self.server.xread({self.key_of(at): at.entry for at in positions}, count=1, block=min(BLOCK, self.lease_time // 3))
        else:
            time.sleep(POLL)

    def advance(self, position, entries, known):
        """Process what belongs to the layout that the partition has reached, or reach the next one.

        The end of the stream is the end of a layout if a later one was known before it was read.
        """
        batch, epoch = [], max(known, position.epoch)
        for entry in entries:
            epoch = self.layouts.epoch_of(position, entry[0])
            if epoch > position.epoch:
                break
            batch.append(entry)
        if batch:
            self.work(position, batch[: self.size])
        elif epoch > position.epoch:
            with self.moving(position) as to:
                to.epoch = epoch

    def work(self, position, batch):
        try:
            self.process(position, batch)
        except POISON as error:
            if getattr(error, "diag", None) and error.diag.constraint_name == "outbox_record_claimed":
                return  # processed meanwhile: the next try finds a duplicate
            if len(batch) == 1:
                self.bury(position, batch[0], error)
            else:
                for entry in batch:
                    self.work(position, [entry])

    def process(self, position, batch):
        """Handle entries and move the position, in one transaction. One statement says which are new."""
        begin = time.monotonic()
        with self.moving(position) as to:
            ids = [message_id(entry) for entry in batch]
            answers = self.database.execute(
                "SELECT outbox_begin(id, endpoint => %s), outbox_commit() FROM unnest(%s::text[]) WITH ORDINALITY t (id, n) ORDER BY n",
                (self.group, ids),
            ).fetchall()
            for entry, (is_new, _) in zip(batch, answers):
                if is_new:
                    self.handle(entry[1])
            to.entry, to.message = batch[-1][0], ids[-1]
        took = (time.monotonic() - begin) / len(batch)
        self.size = max(1, min(BATCH, int(self.lease_time / 3000 / took)))

    def handle(self, fields):
        """What the application does; all of it in the transaction."""
        json.loads(fields["body"])
        if self.pause:
            time.sleep(self.pause / 1000)
        self.database.execute(
            "INSERT INTO handled (key, body, worker) VALUES (%s, %s, %s)", (fields.get("key"), fields["body"], self.name)
        )

    def bury(self, position, entry, error):
        """Put aside what cannot be processed; later messages of its key overtake it."""
        with self.moving(position) as to:
            self.database.execute(
                "INSERT INTO dead_entry (consumers, stream, partition, entry, fields, error) VALUES (%s, %s, %s, %s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (self.group, self.stream, position.partition, entry[0], json.dumps(entry[1]).encode(), repr(error)),
            )
            to.entry, to.message = entry[0], message_id(entry)

    @contextlib.contextmanager
    def moving(self, position):
        """A transaction in which nobody else can work on the partition, or take it. Moves the position to what it yields."""
        place = (self.group, self.stream, position.partition)
        to = dataclasses.replace(position)
        with self.database.transaction():
            row = self.database.execute(
                "SELECT FROM consumer_position WHERE consumers = %s AND stream = %s AND partition = %s AND token = %s FOR UPDATE",
                (*place, position.token),
            ).fetchone()
            if row is None:
                raise Lost
            yield to
            self.database.execute(
                "UPDATE consumer_position SET entry = %s, message = %s, epoch = %s WHERE consumers = %s AND stream = %s AND partition = %s",
                (to.entry, to.message, to.epoch, *place),
            )
        position.entry, position.message, position.epoch = to.entry, to.message, to.epoch

    def stop(self, *_):
        self.stopping = True


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    worker = Worker(*sys.argv[1:])
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()
