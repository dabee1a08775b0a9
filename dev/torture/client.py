"""A client: handles incoming messages and writes the answers into its ledger.

Each line of the ledger is a JSON object:

    {"tx": {...}, "outcome": ..., "told_at": ...}  a transaction; see Transaction
    {"processed": incoming, "at": ...}             somebody else has processed it, said the server
    {"waited": {...}, "answer": ...}               what outbox_wait() said of a transaction
    {"error": ...}                                 nothing that should happen

Outcomes: "committed", "rolled back", and "unknown" when the connection died at
COMMIT. Times are of the monotonic clock, which all processes share.
"""

import dataclasses
import heapq
import json
import queue
import random
import signal
import time

import psycopg
from psycopg import errors

LOST = ("57P01", "57P02", "57P03")  # the server ends the session, and says so
TRY_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable, errors.QueryCanceled)
FULL = (errors.ConfigurationLimitExceeded,)  # the log, see outbox.max_log_size
NO_ENDPOINT = ("42704",)
NO_STORE = ("08000", "08001", "08006", "53000", "53200", "53300", "55000", "57P03")  # it cannot answer

# Where incoming messages go, and how many of a hundred.
ENDPOINTS = {
    "default": 58,
    "short": 8,  # forgets soon
    "tabled": 12,  # remembers in a table
    "stored": 8,  # and in a store
    "moving": 6,  # gets a table during the run
    "sold": 5,  # gets a store
    "passing": 3,  # is created and dropped
}
MANY = 100  # messages of a large transaction, at least
CAPTURED = "orders"  # where the changes of a table go
WITH_STORE = ("stored", "sold")
LARGE = 1_200_000  # bytes that a Redis with a small limit refuses
GROWN = 131_072  # digits of the greatest number that jsonb takes, written 1e131071
DOOMED = 1000  # number of the first message of a transaction that is rolled back to a savepoint


@dataclasses.dataclass
class Delivery:
    """An incoming message on its way to a client."""

    incoming: str
    endpoint: str
    born: float  # first delivered
    due: float

    def __lt__(self, other):
        return self.due < other.due


@dataclasses.dataclass
class Transaction:
    token: str
    is_firm: bool = True  # whether its commit is waited for until it is on disk
    begun: float = 0
    gid: str = None  # if it is prepared
    parts: list = dataclasses.field(default_factory=list)  # [endpoint, incoming] of each business row; None, None: no message came in
    messages: list = dataclasses.field(default_factory=list)  # [part, number, dest, enqueued at, deliver at, key]
    # Of a prepared transaction
    commits: bool = True
    due: float = 0  # when it is decided
    is_prepared: bool = True  # False: the connection died at PREPARE TRANSACTION
    is_tried: bool = False  # the connection died when it was decided


class LostConnection(Exception):
    pass


class RolledBack(Exception):
    """The transaction has been rolled back, by the server or by this client."""


class Client:
    def __init__(self, number, seed, conninfo, ledger, destinations, retention, inboxes, counter, limit_is_small, stop):
        self.number = number
        self.chance = random.Random(f"{seed}/{number}")
        self.conninfo = conninfo
        self.ledger = open(ledger, "w")
        self.destinations = destinations
        self.retention = retention
        self.inboxes = inboxes
        self.counter = counter
        self.limit_is_small = limit_is_small
        self.stop = stop
        self.connection = None
        self.deliveries = []  # heap
        self.prepared = []  # transactions to decide
        self.transactions = 0

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to stop
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            self.connect()
            while not self.stop.is_set():
                self.decide_prepared(time.monotonic())
                self.turn()
                time.sleep(min(self.chance.expovariate(1 / 0.012), 0.2))
            while self.prepared:
                self.decide_prepared(float("inf"))
                time.sleep(0.05)
        except BaseException as error:
            self.note(error=f"client {self.number}: {error!r}")
            raise
        finally:
            self.ledger.close()

    def note(self, **fields):
        self.ledger.write(json.dumps(fields) + "\n")
        self.ledger.flush()

    # Deliveries

    def next_delivery(self):
        """A message that is due to be delivered again, or a new one, which others may get, too."""
        while True:
            try:
                heapq.heappush(self.deliveries, self.inboxes[self.number].get_nowait())
            except queue.Empty:
                break
        now = time.monotonic()
        while self.deliveries and self.deliveries[0].due <= now:
            delivery = heapq.heappop(self.deliveries)
            if now - delivery.born < self.retention / 2:
                return delivery
        with self.counter.get_lock():
            self.counter.value += 1
            delivery = Delivery(f"m{self.counter.value}", "default", now, now)
        delivery.endpoint = self.chance.choices([*ENDPOINTS], ENDPOINTS.values())[0]
        for _ in range(self.chance.choices([0, 1, 2], [60, 25, 15])[0]):
            self.deliver_again(delivery, self.chance.choice([0, 0, self.chance.random() * self.retention / 2]))
        return delivery

    def deliver_again(self, delivery, delay):
        self.chance.choice(self.inboxes).put(dataclasses.replace(delivery, due=time.monotonic() + delay))

    # Transactions

    def turn(self):
        """Run one transaction, and note what is known about it."""
        self.transactions += 1
        tx = Transaction(f"{self.number}-{self.transactions}", begun=time.monotonic())
        style = self.choose_style(tx)
        deliveries = [self.next_delivery() for _ in range(style["incoming"])]
        outcome = None
        try:
            self.begin(style)
            for delivery in deliveries or [None]:
                self.handle(tx, delivery, style)
            if not tx.parts:
                raise RolledBack("nothing but duplicates")
            if any(time.monotonic() - delivery.born > 0.8 * self.retention for delivery in deliveries):
                raise RolledBack("too late")
            outcome = self.end(tx, style["ending"])
        except LostConnection:
            outcome = "rolled back"  # COMMIT was not sent
            self.connect()
        except RolledBack:
            outcome = "rolled back"
            self.roll_back()
        if outcome:
            self.note_outcome(tx, outcome)
        if outcome == "unknown":
            self.connect()
        if outcome == "committed" and deliveries and self.chance.random() < 0.1:
            self.wait_for(tx)
        for delivery in deliveries:
            if self.chance.random() < {"committed": 0, "unknown": 1}.get(outcome, 0.6):
                self.deliver_again(delivery, self.chance.random())

    def choose_style(self, tx):
        chance = self.chance
        tx.is_firm = chance.random() < 0.6
        return {
            "incoming": chance.choices([0, 1, 2], [10, 85, 5])[0],
            "isolation": chance.choices(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"], [80, 10, 10])[0],
            "synchronous_commit": "on" if tx.is_firm else "off",
            "concurrency": chance.choices([None, "optimistic", "pessimistic"], [50, 25, 25])[0],
            "savepoints": chance.random() < 0.2,
            "cursor": chance.random() < 0.04,
            "pause": chance.uniform(0.3, 3) if chance.random() < 0.03 else 0,
            "ending": chance.choices(
                ["commit", "roll back", "prepare", "walk away", "commit and walk away"], [74, 10, 12, 2, 2])[0],
        }  # fmt: skip

    def begin(self, style):
        self.execute(f"BEGIN ISOLATION LEVEL {style['isolation']}")
        self.execute(f"SET LOCAL synchronous_commit = {style['synchronous_commit']}")

    def handle(self, tx, delivery, style):
        """The message handler: business row, outgoing messages and record belong together."""
        if delivery is None:
            self.work(tx, None, None, style)
            return
        arguments = [delivery.incoming, delivery.endpoint, style["concurrency"]]
        excuses = NO_STORE * (delivery.endpoint in WITH_STORE) + NO_ENDPOINT * (delivery.endpoint == "passing")
        if style["savepoints"] and self.chance.random() < 0.3:
            # Do all of it once, and roll back.
            self.execute("SAVEPOINT all_of_it")
            if self.execute("SELECT outbox_begin(%s, %s, %s)", arguments, excuses=excuses):
                self.enqueue_doomed(tx)
                self.execute("SELECT outbox_commit()", claims=delivery, excuses=excuses)
            self.execute("ROLLBACK TO all_of_it")
        if not self.execute("SELECT outbox_begin(%s, %s, %s)", arguments, excuses=excuses):
            if [delivery.endpoint, delivery.incoming] not in tx.parts:  # then by this transaction, which may still roll back
                self.note(processed=delivery.incoming, endpoint=delivery.endpoint, at=time.monotonic())
            self.execute("SELECT outbox_commit()")  # does nothing
            return
        count = self.work(tx, delivery.endpoint, delivery.incoming, style)
        carried = self.execute("SELECT outbox_commit()", claims=delivery, excuses=excuses)
        if carried != count:
            self.note(error=f"{tx.token}: outbox_commit() returned {carried}, not {count}")

    def work(self, tx, endpoint, incoming, style):
        """Change business rows and enqueue messages; return how many."""
        part = len(tx.parts)
        self.execute("INSERT INTO business (token, part, endpoint, incoming) VALUES (%s, %s, %s, %s)",
                     [tx.token, part, endpoint, incoming])  # fmt: skip
        tx.parts.append([endpoint, incoming])
        count = self.chance.randint(1, 5) if self.chance.random() < 0.985 else self.chance.randint(MANY, 4 * MANY)
        fetched = self.enqueue_by_cursor(tx, part) if style["cursor"] else 0
        count = max(count, fetched)
        if count >= MANY and not fetched and self.chance.random() < 0.5:
            return self.enqueue_many(tx, part, count)
        for number in range(fetched, count):
            if style["pause"] and number == count - 1:
                time.sleep(style["pause"])
            if style["savepoints"] and self.chance.random() < 0.5:
                self.execute("SAVEPOINT one")
                self.enqueue_doomed(tx)
                self.execute("ROLLBACK TO one")
            self.enqueue(tx, part, number)
        return count

    def enqueue(self, tx, part, number):
        chance = self.chance
        dest = chance.choice(self.destinations)
        deliver_at = time.time() + chance.uniform(0, 3) if chance.random() < 0.03 else None
        message_id = f"{tx.token}-{part}-{number}" if chance.random() < 0.5 else None
        kind = chance.choice(["text", "json", "jsonb", "bytea", "forward", "capture"])
        if kind == "capture":
            return self.enqueue_by_capture(tx, part, number)
        size = chance.choices([10, 1000, 30_000, 300_000], [70, 25, 4.5, 0.5])[0]
        padding = chance.randrange(size)
        if self.limit_is_small.value and chance.random() < 0.02:
            padding = LARGE
        grown = chance.choices([0, 1, 20, 1000], [98, 1.9, 0.09, 0.01])[0]
        headers = "{" + ", ".join(f'"n{n}": 1e{GROWN - 1}' for n in range(grown)) + "}" if grown else None
        body = self.body(tx, part, number, grown, padding)
        key = f"k{chance.randrange(20)}" if chance.random() < 0.9 else None
        tx.messages.append([part, number, dest, time.monotonic(), deliver_at, key])
        if kind == "forward":
            call = "INSERT INTO forwarded VALUES (%s, %s, %s::jsonb, %s, to_timestamp(%s), %s)"
        else:
            call = f"SELECT outbox_enqueue(%s, %s::{kind}, %s::jsonb, message_id => %s, deliver_at => to_timestamp(%s), key => %s)"
        self.execute(call, [dest, body.encode() if kind == "bytea" else body, headers, message_id, deliver_at, key],
                     excuses=("54000",) if grown else ())  # fmt: skip

    def enqueue_by_capture(self, tx, part, number):
        """One message, which is the insert of a row."""
        tx.messages.append([part, number, CAPTURED, time.monotonic(), None, None])
        self.execute("INSERT INTO captured VALUES (%s, %s, %s, 0)", [tx.token, part, number])

    def body(self, tx, part, number, grown=0, padding=0):
        return json.dumps({"tx": tx.token, "part": part, "number": number, "grown": grown, "padding": "x" * padding})

    def enqueue_many(self, tx, part, count):
        dest = self.chance.choice(self.destinations)
        tx.messages.extend([part, number, dest, time.monotonic(), None, None] for number in range(count))
        bodies = [self.body(tx, part, number) for number in range(count)]
        return self.execute("SELECT outbox_enqueue_many(%s, %s::text[])", [dest, bodies])

    def enqueue_by_cursor(self, tx, part):
        """Two messages, by a cursor whose third row fails in a savepoint; then nothing for a while. Return how many."""
        dests = [self.chance.choice(self.destinations) for _ in range(2)]
        tx.messages.extend([part, number, dest, time.monotonic(), None, None] for number, dest in enumerate(dests))
        query = f"DECLARE messages_{part} CURSOR FOR SELECT outbox_enqueue(dest, body) FROM unnest(%s::text[], %s::text[]) AS message (dest, body)"
        bodies = [self.body(tx, part, number) for number in range(3)]
        self.execute(psycopg.ClientCursor(self.connection).mogrify(query, [[*dests, "outbox:"], bodies]))
        self.execute(f"FETCH 2 FROM messages_{part}")
        self.execute("SAVEPOINT two")
        self.execute(f"FETCH 1 FROM messages_{part}", fails_with=errors.ReservedName)
        self.execute("ROLLBACK TO two")
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(2, 6))  # in which the rings go round
        return 2

    def enqueue_doomed(self, tx):
        body = json.dumps({"tx": tx.token, "part": 0, "number": DOOMED})
        self.execute("SELECT outbox_enqueue(%s, %s)", [self.chance.choice(self.destinations), body])

    def end(self, tx, ending):
        """End the transaction; return the outcome, or None if it will be known later."""
        if ending == "roll back":
            raise RolledBack("as intended")
        if ending == "walk away":
            self.connection.close()
            raise LostConnection("as intended")
        if ending == "commit and walk away":
            self.connection.pgconn.send_query(b"COMMIT")
            self.connection.pgconn.flush()
            self.connection.close()
            return "unknown"
        if ending == "prepare":
            tx.gid = tx.token
            tx.commits = self.chance.random() < 0.7
            tx.due = time.monotonic() + self.chance.choice([0, self.chance.random(), 3 * self.chance.random()])
            tx.is_firm = True  # COMMIT PREPARED always waits for the disk
            try:
                self.execute(f"PREPARE TRANSACTION '{tx.gid}'")
            except LostConnection:
                tx.is_prepared = False
                self.connect()
            self.prepared.append(tx)
            return None
        try:
            self.execute("COMMIT")
            return "committed"
        except LostConnection:
            return "unknown"

    def decide_prepared(self, now):
        for tx in [tx for tx in self.prepared if tx.due <= now]:
            try:
                self.execute(f"{'COMMIT' if tx.commits else 'ROLLBACK'} PREPARED '{tx.gid}'")
                outcome = "committed" if tx.commits else "rolled back"
            except errors.UndefinedObject:
                if tx.is_tried:
                    outcome = "committed" if tx.is_prepared and tx.commits else "unknown"
                else:
                    outcome = "rolled back"
                    if tx.is_prepared:
                        self.note(error=f"prepared transaction {tx.gid} has vanished")
            except (errors.ObjectNotInPrerequisiteState, RolledBack):
                continue  # busy, or canceled
            except LostConnection:
                tx.is_tried = True
                self.connect()
                continue
            self.prepared.remove(tx)
            self.note_outcome(tx, outcome)

    def wait_for(self, tx):
        """Ask outbox_wait() about a part of it."""
        part = self.chance.randrange(len(tx.parts))
        endpoint, incoming = tx.parts[part]
        try:
            answer = self.execute("SELECT outbox_wait(%s, %s, '300 ms')", [incoming, endpoint])
        except LostConnection:
            self.connect()
            return
        except RolledBack:
            return
        waited = {"token": tx.token, "part": part, "endpoint": endpoint, "at": time.monotonic(), "time": time.time()}
        self.note(waited=waited, answer=answer)

    def note_outcome(self, tx, outcome):
        self.note(tx=dataclasses.asdict(tx), outcome=outcome, told_at=time.monotonic())

    # The connection

    def execute(self, query, arguments=None, claims=None, excuses=(), fails_with=()):
        """Run a statement and return the first column, if there is one. It may fail with one of excuses, and must with fails_with."""
        try:
            cursor = self.connection.execute(query, arguments)
            if query == "COMMIT" and cursor.statusmessage != "COMMIT":
                raise RolledBack(cursor.statusmessage)
            if fails_with:
                self.note(error=f"{query}: did not fail")
            return cursor.fetchone()[0] if cursor.description else None
        except fails_with:
            return None
        except TRY_AGAIN + FULL as error:
            raise RolledBack(str(error)) from error
        except errors.UniqueViolation as error:
            if error.diag.constraint_name != "outbox_record_claimed" or not claims:
                self.note(error=f"{query}: {error}")
            else:
                self.note(processed=claims.incoming, endpoint=claims.endpoint, at=time.monotonic())
            raise RolledBack(str(error)) from error
        except psycopg.Error as error:
            if error.sqlstate in excuses:
                raise RolledBack(str(error)) from error
            self.tell(query, error)

    def tell(self, query, error):
        """Raise what an error means; note one that should not happen."""
        try:
            raise error
        except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState) as error:
            if not query.endswith(f"PREPARED '{self.gid_of(query)}'"):
                self.note(error=f"{query}: {error}")
                raise RolledBack(str(error)) from error
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if self.connection.closed or getattr(error, "sqlstate", None) in LOST:
                self.connection.close()
                raise LostConnection(str(error)) from error
            self.note(error=f"{query}: {error!r}")
            raise RolledBack(str(error)) from error
        except psycopg.Error as error:
            self.note(error=f"{query}: {error!r}")
            raise RolledBack(str(error)) from error

    @staticmethod
    def gid_of(query):
        return query.split("'")[1] if "'" in query else None

    def roll_back(self):
        try:
            self.execute("ROLLBACK")
        except RolledBack:  # canceled, so it is not
            self.roll_back()
        except LostConnection:
            self.connect()

    def connect(self):
        """Connect; if the server is away, wait for it."""
        if self.connection:
            self.connection.close()
        while True:
            try:
                self.connection = psycopg.connect(self.conninfo, autocommit=True)
                # Prepared transactions of several clients may wait for each other in a circle.
                self.connection.execute("SET lock_timeout = '2s'")
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
