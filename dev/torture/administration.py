"""What administrators, and owners of tables and of other databases, do while the outbox works.

None of it may lose, double or reorder a message, or stop the outbox for longer than it lasts.
A statement that waits for others runs in a thread of its own, so that the plan goes on.
"""

import json
import os
import subprocess
import threading
import time

import psycopg
from psycopg import errors

ASIDES = 4  # statements that run at the same time, beside the plan
PATIENCE = 20  # seconds after which such a statement is cancelled
# Errors of PostgreSQL itself when two administrators work at the same time.
COLLISIONS = ("tuple concurrently updated", "tuple concurrently deleted", "could not find tuple for")

# What an administrator may want an index on: columns, an expression, and a predicate.
COLUMNS = {
    "log": ["enqueued_at", "dest, id", "lower(dest)", "message_id) WHERE (deliver_at IS NOT NULL"],
    "record": ["tx", "endpoint, msgid"],
    "window": ["tx", "uuid"],
    "history": ["length(keys)"],
    "deferred": ["next_attempt", "dest"],
    "tabled_inbox": ["at", "lower(ref)"],
}


class Skipped(Exception):
    """An event finds nothing to do; says why."""


class Administration:
    """The part of Events that happens inside PostgreSQL."""

    def __init__(self):
        self.errors = []  # that no statement may ever get
        self.replays = []  # (at, dest, None for all): what was sent by then may come once more
        self.discarded = {}  # message → whether we were told that it is
        self.sold_at = None  # when the endpoint "sold" got a store
        self._asides = []
        self._indexes = []  # that we made
        self._numbers_of_indexes = 0

    # Statements that wait

    def aside(self, event, function):
        """Run it in a thread."""
        self._asides = [thread for thread in self._asides if thread.is_alive()]
        if len(self._asides) >= ASIDES:
            raise Skipped("enough is going on")

        def watched():
            try:
                function()
                self.say(f"  {event}: done")
            except (psycopg.Error, subprocess.SubprocessError, OSError) as error:
                self.note_failure(event, error)
                self.say(f"  {event}: {first_line(error)}")

        thread = threading.Thread(target=watched, daemon=True)
        thread.start()
        self._asides.append(thread)

    def finish_asides(self):
        for thread in self._asides:
            thread.join(3 * PATIENCE)
            if thread.is_alive():
                self.errors.append("a statement of an administrator does not end")

    def run(self, statement, lock_timeout="300ms", user="postgres", database="postgres"):
        """Run a statement in a session of its own."""
        with psycopg.connect(self.postgres.conninfo(user, database), autocommit=True) as session:
            session.execute(f"SET statement_timeout = '{PATIENCE}s'; SET lock_timeout = '{lock_timeout}'")
            session.execute(statement)

    def note_failure(self, what, error):
        """Note an internal error, whichever statement gets it."""
        if (getattr(error, "sqlstate", None) or "").startswith("XX") and not any(text in str(error) for text in COLLISIONS):
            self.errors.append(f"{what}: {error.sqlstate}: {first_line(error)}")

    def table(self, table, segment):
        """The name of a table; segment None: the one that is being written."""
        if table not in ("log", "window", "record", "history"):
            return table
        if segment is None:
            ring = "log" if table == "window" else table
            state = "state IN ('filling', 'quiet')" if table == "history" else "state = 'current'"
            segments = self.query(f"SELECT segment FROM outbox.ring WHERE ring = '{ring}' AND {state} ORDER BY segment")
            if not segments:
                raise Skipped("there is none")
            segment = segments[0][0]
        return f"outbox.{table}_{segment}"

    # Tables and indexes

    def reindex(self, table, segment, concurrently):
        name = self.table(table, segment)
        if concurrently:
            # It waits for every transaction that has written there, three times.
            self.aside(f"reindex {name} concurrently", lambda: self.run(f"REINDEX TABLE CONCURRENTLY {name}", "8s"))
        else:
            self.run(f"REINDEX TABLE {name}")

    def create_index(self, table, segment, column, concurrently):
        name = self.table(table, segment)
        columns = COLUMNS[table.removeprefix("outbox.")]
        self._numbers_of_indexes += 1
        index = f"torture_{self._numbers_of_indexes}"
        how = "INDEX CONCURRENTLY" if concurrently else "INDEX"
        statement = f"CREATE {how} {index} ON {name} ({columns[column % len(columns)]})"
        self._indexes.append(f"{'outbox' if name.startswith('outbox.') else 'public'}.{index}")
        if concurrently:
            self.aside(f"create {index}", lambda: self.run(statement, "8s"))
        else:
            self.run(statement)

    def drop_index(self, which, concurrently):
        """An index made here, or one that a failed REINDEX CONCURRENTLY has left behind."""
        left = [f"outbox.{name}" for (name,) in self.query("SELECT relname FROM pg_class WHERE relname ~ '_cc(new|old)'"
                " AND relnamespace = 'outbox'::regnamespace AND relkind = 'i' ORDER BY relname")]  # fmt: skip
        if not self._indexes + left:
            raise Skipped("there is none")
        index = (self._indexes + left)[int(which * len(self._indexes + left))]
        if index in self._indexes:
            self._indexes.remove(index)
        if concurrently:
            self.aside(f"drop {index}", lambda: self.run(f"DROP INDEX CONCURRENTLY IF EXISTS {index}", "8s"))
        else:
            self.run(f"DROP INDEX IF EXISTS {index}")

    def rewrite_table(self, table, segment, how):
        # It waits for its lock behind others: not for long.
        name = self.table(table, segment)
        if how == "CLUSTER":
            found = self.query("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass AND indisvalid"
                               " AND indpred IS NULL AND indexprs IS NULL ORDER BY 1 LIMIT 1", name)  # fmt: skip
            if not found:
                raise Skipped("it has no index to be clustered by")
            self.run(f"CLUSTER {name} USING {found[0][0].split('.')[-1]}")
        else:
            self.run(f"{how} {name}")

    def hold_tables(self, seconds):
        """As pg_dump does."""
        if self._holding:
            raise Skipped("they are held")
        session = self.connect()
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        tables = session.execute("SELECT string_agg('outbox.' || relname, ', ') FROM pg_class"
                                 " WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r' AND relname ~ '^(log|record)_'").fetchone()[0]  # fmt: skip
        session.execute(f"LOCK TABLE {tables} IN ACCESS SHARE MODE")
        self._holding = session
        self.later(2 * seconds, self.let_go)

    def let_go(self):
        self._holding.close()
        self._holding = None

    def dump(self):
        def dump():
            file = os.path.join(self.postgres.folder + ".dump")
            command = ["pg_dump", "--dbname", self.postgres.conninfo(), "--file", file]
            subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=True)

        self.aside("dump", dump)

    def look(self):
        """All views, which must never fail."""
        for view in ("status", "pending", "records", "endpoints", "destinations", "dead_letters"):
            try:
                self.query(f"SELECT count(*) FROM outbox.{view}")
            except psycopg.Error as error:
                self.note_failure(view, error)
                raise

    # The outbox

    def clean_up(self):
        self.query("SELECT outbox_cleanup()")

    def replay(self, dest, back):
        try:
            self.query("SELECT outbox_replay(clock_timestamp() - %s * interval '1 s', %s)", back, dest)
        finally:
            self.replays.append((time.monotonic(), dest))

    def set_partitions(self, dest, partitions):
        self.query("SELECT outbox_set_destination(%s, partitions => %s, reset => %s)", dest, partitions, None if partitions else ["partitions"])

    def retry(self, which=None):
        """Try all dead messages again, or those with the id of one of them."""
        if which is None:
            self.query("SELECT outbox_retry()")
        else:
            dest, message_id, _ = self.dead_message(which)
            self.query("SELECT outbox_retry(%s, %s)", dest, message_id)

    def discard(self, which):
        dest, message_id, body = self.dead_message(which)
        content = json.loads(body)
        content = content.get("after", content)  # of a captured row
        key = content["tx"], content["part"], content["number"]
        self.discarded[key] = False  # until we are told
        self.discarded[key] = self.query("SELECT outbox_discard(%s, %s)", dest, message_id) == [(1,)]

    def dead_message(self, which):
        dead = self.query("SELECT dest, message_id, convert_from(body, 'UTF8') FROM outbox.dead_letters WHERE body IS NOT NULL"
                          " ORDER BY dest, first_attempt, message_id")  # fmt: skip
        if not dead:
            raise Skipped("none is dead")
        return dead[int(which * len(dead))]

    def alter_endpoint(self, name, concurrency):
        self.query("SELECT outbox_alter_endpoint(%s, %s)", name, concurrency)

    def come_and_go_endpoint(self, force):
        """Create or drop an endpoint that exists at times."""
        if self.query("SELECT name FROM outbox.endpoint WHERE name = 'passing'"):
            self.query("SELECT outbox_drop_endpoint('passing', %s)", force)
        else:
            self.query("SELECT outbox_create_endpoint('passing')")

    def equip_endpoint(self, name):
        """Give endpoints a table, or a store, while messages of theirs are processed."""
        if name == "moving":
            self.query(f"SELECT outbox_alter_endpoint('moving', record_table => 'moving_inbox', record_columns => '{RECORD_COLUMNS}')")
        elif self.sold_at is None:
            self.query("SELECT outbox_alter_endpoint('sold', dedup_store => %s)", self.store_url)
            self.sold_at = time.monotonic()
        else:
            raise Skipped("it has one")

    def change_settings(self, patience=3, **settings):
        with self.connect(patience) as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name.replace('_', '.', 1)} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")

    def checkpoint(self):
        self.query("CHECKPOINT")

    def pause_destination(self, dest, seconds):
        try:
            self.query("SELECT outbox_pause(%s)", dest)
        finally:
            self.later(seconds, lambda: self.resume(dest))

    def resume(self, dest):
        self.surely(lambda: self.query("SELECT outbox_resume(%s)", dest, patience=0))

    def switch_off(self, seconds):
        try:
            self.change_settings(outbox_dispatch="off")
        finally:  # it may be off although the server died at once
            self.later(seconds, self.switch_on)

    def switch_on(self):
        self.surely(lambda: self.change_settings(outbox_dispatch="on", patience=0))

    # Other databases

    def drop_database_of_others(self, seconds):
        """Let a role try it that may not do it."""

        def insist():
            deadline = time.monotonic() + seconds
            with psycopg.connect(self.postgres.conninfo("shop", "template1"), autocommit=True) as session:
                while time.monotonic() < deadline:
                    try:
                        session.execute("DROP DATABASE postgres")
                        self.errors.append("somebody dropped the database who may not")
                    except errors.InsufficientPrivilege:
                        time.sleep(0.02)

        self.aside("drop database of others", insist)

    def copy_database(self):
        """It fails, for clients are connected; but it asks all other processes to leave."""

        def copy():
            try:
                self.run("CREATE DATABASE copy TEMPLATE postgres", "8s", database="template1")
                self.run("DROP DATABASE copy WITH (FORCE)", "8s", database="template1")
            except errors.ObjectInUse:
                pass

        self.aside("copy database", copy)

    def come_and_go_database(self):
        """Create another database with the extension, and drop it while it sends."""

        def come_and_go():
            self.run("DROP DATABASE IF EXISTS passing WITH (FORCE)", "8s", database="template1")
            self.run("CREATE DATABASE passing TEMPLATE template0", "8s", database="template1")
            self.run("CREATE EXTENSION outbox; SELECT outbox_enqueue('elsewhere', 'x') FROM generate_series(1, 100)", database="passing")
            self.run("DROP DATABASE passing WITH (FORCE)", "8s", database="template1")

        self.aside("come and go database", come_and_go)


RECORD_COLUMNS = '{"message_id": "ref", "dispatched": "done", "dispatched_at": "done_at"}'


def create_inbox(name):
    """Statements that make a record table."""
    yield (f"CREATE TABLE {name} (ref text PRIMARY KEY, done boolean NOT NULL DEFAULT false,"
           " done_at timestamptz, at timestamptz DEFAULT now())")  # fmt: skip
    yield f"CREATE INDEX ON {name} (done_at) WHERE done"


def first_line(error):
    return (str(error).strip().splitlines() or [repr(error)])[0]
