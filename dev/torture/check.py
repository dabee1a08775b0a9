"""Compares what clients know, what PostgreSQL has, and what Redis has."""

import collections
import hashlib
import json
import mmap
import re
import struct
import time

import psycopg

from client import GROWN, WITH_STORE
from plan import HOLDING

LASTING = ("default", "tabled", "stored", "moving", "sold")  # endpoints whose retention is longer than any message is delivered again
EPOCH = time.time() - time.monotonic()  # of the monotonic clock
DEATH = re.compile('outbox: message "(.*?)" for destination .* is dead after')
PAGE = 500  # entries of a stream read at a time
PATIENCE = 180  # seconds until a store has all ids
SHOWN = 12  # examples of each kind of difference


def body_of(fields):
    """What a client has enqueued, from the fields of an entry."""
    body = json.loads(fields[b"body"])
    return body.get("after", body)  # of a captured row


def key_of(fields):
    """Which message an entry is."""
    body = body_of(fields)
    return body["tx"], body["part"], body["number"]


class Books:
    def __init__(self):
        self.transactions = {}  # token → (transaction, outcome, told at)
        self.processed = []  # (endpoint, incoming, at), as the server has answered
        self.waited = []  # (what was asked, answer of outbox_wait())
        self.errors = []
        self.rows = collections.Counter()  # (token, part) → business rows
        self.handled = collections.Counter()  # (endpoint, incoming) → business rows
        self.tokens = collections.defaultdict(set)  # (endpoint, incoming) → transactions that have processed it
        self.streams = {}  # dest → entries in their order: ((token, part, number), entry)
        self.altered = []  # keys whose headers are not what was enqueued
        self.unmarked = []  # ids in record tables
        self.broken = []  # indexes
        self.died = set()  # ids of messages that were dead once
        self.stored = set()  # keys that were ever added to the store
        self.gone = []  # keys that should be in the store of a cluster and are not
        self.strays = []  # keys of a cluster that are on two nodes, or the wrong one
        self.losses = None  # of streams of a cluster
        self.excused = set()  # messages that a cluster has lost when they were too old to come again

    def read_ledger(self, path):
        with open(path) as lines:
            for line in lines:
                entry = json.loads(line)
                if "tx" in entry:
                    self.transactions[entry["tx"]["token"]] = (entry["tx"], entry["outcome"], entry["told_at"])
                elif "processed" in entry:
                    self.processed.append((entry["endpoint"], entry["processed"], entry["at"]))
                elif "waited" in entry:
                    self.waited.append((entry["waited"], entry["answer"]))
                else:
                    self.errors.append(entry["error"])

    def read_postgres(self, connection):
        for token, part, endpoint, incoming in connection.execute("SELECT token, part, endpoint, incoming FROM business"):
            self.rows[token, part] += 1
            if incoming:
                self.handled[endpoint, incoming] += 1
                self.tokens[endpoint, incoming].add(token)
        for table in ("tabled_inbox", "moving_inbox"):
            self.unmarked += [(table, *row) for row in connection.execute(f"SELECT ref, at::text FROM {table} WHERE NOT done")]
        self.read_indexes(connection)

    def read_indexes(self, connection):
        """Check with amcheck, if it is installed, whether each row of the outbox's tables is in each index."""
        if not connection.execute("SELECT FROM pg_available_extensions WHERE name = 'amcheck'").fetchone():
            return
        connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
        indexes = connection.execute(
            "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class c ON c.oid = indrelid"
            " WHERE (relnamespace = 'outbox'::regnamespace OR relname ~ 'inbox') AND indisvalid AND relkind = 'r'"
        ).fetchall()  # fmt: skip
        for (index,) in indexes:
            try:
                connection.execute("SELECT bt_index_check(%s::regclass, true)", [index])
            except psycopg.Error as error:
                self.broken.append((index, str(error).strip()))

    def read_log(self, path, alarms):
        """Read what the server has no reason to log, and which messages were dead."""
        with open(path, errors="replace") as log:
            for line in log:
                if alarms.search(line):
                    self.errors.append(line.strip())
                if match := DEATH.search(line):
                    self.died.add(match[1])

    def read_store(self, path):
        """Read the keys that were ever added to the store, also those that have expired, from all that Redis ever wrote."""
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as writes:
            self.stored.update(match[1] for match in re.finditer(rb"outbox:dedup:(.{16})\r\n", writes, re.DOTALL))

    def read_consumer(self, consumer, sold_at, recently):
        """Read what a cluster had; wait until its store has all ids, and has again those that were processed recently."""
        self.excused = consumer.excused - {key for entries in self.streams.values() for key, *_ in entries}
        self.losses = consumer.losses
        deadline = time.monotonic() + PATIENCE
        while True:
            present = consumer.look_at_store()
            self.stored = consumer.stored
            self.gone = [of for of, key, begun in self.keys_in_store(sold_at) if begun > recently and key not in present]
            if not (self.gone or any(self.missing_in_store(sold_at))) or time.monotonic() > deadline:
                return
            time.sleep(0.5)

    def read_redis(self, server, streams):
        for dest in streams:
            entries = self.streams[dest] = []
            first = "-"
            client = server.server_of(dest)
            while page := client.xrange(dest, min=first, count=PAGE):
                for entry_id, fields in page:
                    body = body_of(fields)
                    key = key_of(fields)
                    cause = fields.get(b"cause", b"").decode() or None
                    if any(len(fields.get(b"n%d" % n, b"")) != GROWN for n in range(body["grown"])):
                        self.altered.append(key)
                    entries.append((key, int(entry_id.split(b"-")[0]), fields[b"id"].decode(), cause))
                first = b"(" + page[-1][0]

    def totals(self):
        outcomes = collections.Counter(outcome for _, outcome, _ in self.transactions.values())
        yield "transactions", ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        prepared = sum(tx["gid"] is not None for tx, _, _ in self.transactions.values())
        yield "of these prepared", prepared
        yield "business rows", sum(self.rows.values())
        yield "messages in Redis", sum(map(len, self.streams.values()))
        yield "messages that were dead", len(self.died)
        if self.losses is not None:
            yield "losses of streams that consumers met", f"{self.losses}, {len(self.excused)} messages too old to come again"
        yield "duplicates refused", len(self.processed)
        yield "answers of outbox_wait()", dict(collections.Counter(str(answer) for _, answer in self.waited))

    def differences(self, events, lossy):
        """Yield (what is wrong, cases) for everything that is wrong."""
        crashes = events.crashes
        yield "errors that should not happen", self.errors
        yield "transactions told committed are not there", [
            token for token, (tx, outcome, told_at) in self.transactions.items()
            if outcome == "committed" and self.is_firm(tx["is_firm"], told_at, crashes) and not self.rows_of(token)
        ]  # fmt: skip
        yield "transactions told rolled back are there", [
            token for token, (_, outcome, _) in self.transactions.items() if outcome == "rolled back" and self.rows_of(token)
        ]
        yield "transactions are there in part", [
            token for token, (tx, _, _) in self.transactions.items()
            if self.rows_of(token) and set(self.rows_of(token)) != set(range(len(tx["parts"])))
        ]  # fmt: skip
        yield "business rows are of no transaction", [key for key in self.rows if key[0] not in self.transactions]
        yield "business rows are there more than once", [key for key, count in self.rows.items() if count > 1]
        yield "incoming messages were processed more than once", [
            key for key, count in self.handled.items()
            if count > 1 and key[0] in LASTING and not any(self.spans(key, leap) for leap in events.leaps)
        ]
        yield "incoming messages called duplicates were never processed", [
            (endpoint, incoming) for endpoint, incoming, at in self.processed
            if self.is_firm(False, at, crashes) and not self.handled[endpoint, incoming]
        ]  # fmt: skip
        yield "records were not found by outbox_wait()", [
            waited for waited, answer in self.waited
            if answer is None and waited["endpoint"] in LASTING and self.is_firm(False, waited["at"], crashes)
            and not any(self.transactions[waited["token"]][0]["begun"] < leap < waited["at"] for leap in events.leaps)
        ]  # fmt: skip
        if not lossy:
            yield "outbox_wait() said true too early", list(self.said_too_early(events.discarded))
        yield from self.differences_of_messages(events)
        yield "headers are not what was enqueued", self.altered
        yield "records in tables are not marked", self.unmarked
        yield "ids are not in the store", list(self.missing_in_store(events.sold_at))
        yield "ids are not in the store any more", self.gone
        yield "keys are on a node that does not serve them", self.strays
        yield "indexes are broken", self.broken
        yield "messages came in the wrong order", list(self.disorder(events.discarded))

    def spans(self, key, leap):
        """Check whether the clock was set between two transactions that processed a message."""
        transactions = [self.transactions[token] for token in self.tokens[key]]
        return min(tx["begun"] for tx, *_ in transactions) < leap < max(told_at for *_, told_at in transactions)

    def keys_in_store(self, sold_at):
        """Yield (endpoint and incoming message, key, when its transaction began) of what the store must have got."""
        for endpoint, incoming in self.handled:
            if endpoint not in WITH_STORE:
                continue
            begun = min(self.transactions[token][0]["begun"] for token in self.tokens[endpoint, incoming])
            if endpoint == "sold" and (sold_at is None or begun < sold_at):
                continue
            parts = [part.encode() for part in (endpoint, incoming)]
            key = hashlib.sha256(b"".join(struct.pack(">I", len(part)) + part for part in parts)).digest()[:16]
            yield (endpoint, incoming), key, begun

    def missing_in_store(self, sold_at):
        return (of for of, key, _ in self.keys_in_store(sold_at) if key not in self.stored)

    def is_firm(self, is_firm, at, crashes):
        """Check whether an answer of that time must hold: WAL that was not waited for is lost in a crash."""
        return is_firm or not any(begin <= at <= end for begin, end in crashes)

    def rows_of(self, token):
        tx = self.transactions[token][0]
        return [part for part in range(len(tx["parts"])) if self.rows[token, part]]

    def said_too_early(self, discarded):
        arrived = {}
        for entries in self.streams.values():
            for key, at, _, _ in entries:
                arrived[key] = min(at, arrived.get(key, at))
        for waited, answer in self.waited:
            token, part = waited["token"], waited["part"]
            if answer and part in self.rows_of(token):
                for message_part, number, *_ in self.transactions[token][0]["messages"]:
                    at = arrived.get((token, part, number))
                    if message_part == part and (token, part, number) not in discarded and (at is None or at > waited["time"] * 1000):
                        yield token, part, number, at, waited

    def differences_of_messages(self, events):
        expected = {}  # (token, part, number) → (dest, deliver at, incoming, enqueued at)
        for token, (tx, _, _) in self.transactions.items():
            if self.rows_of(token):
                for part, number, dest, at, deliver_at, _ in tx["messages"]:
                    expected[token, part, number] = dest, deliver_at, tx["parts"][part][1], at
        places = collections.defaultdict(list)
        for stream, entries in self.streams.items():
            dest = stream.split(":")[0]  # without the number of a partition
            for position, (key, at, message_id, cause) in enumerate(entries):
                places[key].append((dest, position, at, message_id, cause))

        yield "messages of committed transactions are missing", sorted(
            (key, expected[key][0], *self.transactions[key[0]][1:]) for key in expected.keys() - places.keys() - events.discarded.keys() - self.excused
        )
        yield "messages came although they were discarded", sorted(
            (key, places[key]) for key in places.keys() & expected.keys()
            if events.discarded.get(key) and self.copies(expected[key], events.replays) == 1
        )  # fmt: skip
        yield "messages are ghosts: no transaction committed them", sorted(
            (key, places[key]) for key in places.keys() - expected.keys()
        )
        yield "messages came more than once", sorted(
            (key, found) for key, found in places.items()
            if len(found) > 1 and (key not in expected or len(found) > self.copies(expected[key], events.replays))
        )  # fmt: skip
        found = [(key, place, expected[key]) for key in expected for place in places[key]]
        yield "messages came to the wrong stream or with the wrong cause", [
            (key, place, wanted) for key, place, wanted in found
            if (place[0], place[4]) != (wanted[0], wanted[2]) or len(place[3]) != 36 and place[3] != "-".join(map(str, key))
        ]  # fmt: skip
        yield "messages came before their time", [
            (key, place, wanted) for key, place, wanted in found
            if wanted[1] and place[2] < int(wanted[1] * 1000)
            and not any(begin < place[2] / 1000 - EPOCH and wanted[3] < end for begin, end in events.times_ahead())
        ]  # fmt: skip

    @staticmethod
    def copies(wanted, replays):
        """How often a message may be there: each replay may send all messages once more."""
        return 2 ** sum(dest in (None, wanted[0]) and wanted[3] < at for at, dest in replays)

    def disorder(self, discarded):
        """What was enqueued after another transaction was known to be committed comes behind its messages,
        and what one transaction enqueued comes in that order. Scheduled messages have their own time, and so
        have those that were discarded, which may come by a replay, and those that were dead and hold back none."""
        enqueued, committed, keys = {}, {}, {}
        for token, (tx, outcome, told_at) in self.transactions.items():
            for part, number, dest, at, deliver_at, key in tx["messages"]:
                if deliver_at is None and (token, part, number) not in discarded:
                    enqueued[token, part, number] = at
                    keys[token, part, number] = key if dest == HOLDING else None
            if outcome == "committed":
                committed[token] = told_at
        for dest, first in self.ordered(keys):
            earliest, who = float("inf"), None  # commit of what comes later in the stream
            latest = {}  # token → (enqueued at, key) of its message that comes next in the stream
            for key in reversed(first):
                if enqueued[key] > earliest:
                    yield dest, key, "was enqueued after this was committed and came before it", who
                following = latest.get(key[0])
                if following and following[0] < enqueued[key]:
                    yield dest, key, "was enqueued after this and came before it", following[1]
                latest[key[0]] = enqueued[key], key
                if committed.get(key[0], earliest) < earliest:
                    earliest, who = committed[key[0]], key

    def ordered(self, keys):
        """Yield (stream, messages that must be in order there), each at its first place. A replay may go to other partitions."""
        first = {}
        for entries in self.streams.values():
            for message, at, *_ in entries:
                first[message] = min(at, first.get(message, at))
        for stream, entries in self.streams.items():
            groups = collections.defaultdict(dict)
            may_be_late = self.died if stream.split(":")[0] != HOLDING else ()
            for message, at, message_id, _ in entries:
                if message in keys and at == first[message] and message_id not in may_be_late:
                    groups[keys[message]].setdefault(message)
            for group in groups.values():
                yield stream, list(group)
