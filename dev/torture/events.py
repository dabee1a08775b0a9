"""Does to the servers what the plan says, and undoes it in time."""

import heapq
import itertools
import os
import shutil
import signal
import time

import psycopg
import redis

import kill_points
from administration import Administration, Skipped, first_line

LEAP = 3600  # seconds by which the clock is set when it is set far
MANY_ATTEMPTS = 1_000_000
GRACE = 5  # seconds within which WAL that was not waited for is on disk


class Events(Administration):
    def __init__(self, postgres, server, proxies, destinations, streams, limit_is_small, say):
        super().__init__()
        self.postgres = postgres
        self.redis = server  # or a cluster
        self.proxies = proxies  # one for each node
        self.destinations = destinations
        self.streams = streams
        self.store_url = server.url("/1")
        self.limit_is_small = limit_is_small  # a flag that clients see: Redis refuses large messages now
        self.say = say
        self.done = {}  # kind → how often
        self.crashes = []  # (from, to): what was committed asynchronously then may be gone
        self.leaps = []  # when the clock of PostgreSQL was set so far forward that ids may be forgotten
        self.is_healing = False
        self._undo = []  # heap of (due, number, function)
        self._numbers = itertools.count()
        self._holding = None  # session that holds tables
        self._clock_set_at = 0
        self._killed_at = 0  # when a process was, without the postmaster
        self._armed_until = None  # a kill point
        self._armed_since = None
        self._died = None  # in which manner a process dies there, if others lose something by that
        self._times_ahead = []

    # Doing and undoing

    def happen(self, event):
        try:
            getattr(self, event.kind)(**{name.replace("outbox.", "outbox_"): value for name, value in event.arguments.items()})
            self.done[event.kind] = self.done.get(event.kind, 0) + 1
            self.say(str(event).strip())
        except (Skipped, psycopg.Error, redis.RedisError, ProcessLookupError) as reason:
            self.note_failure(str(event).strip(), reason)
            self.say(f"{event}   (not done: {first_line(reason)})".strip())

    def undo_due(self):
        """Undo what has lasted long enough."""
        self.redis.note_size()
        self.look_at_kill_point()
        while self._undo and self._undo[0][0] <= time.monotonic():
            heapq.heappop(self._undo)[2]()

    def heal(self):
        """Undo everything."""
        self.is_healing = True
        for proxy in self.proxies:
            proxy.heal()
        self.disarm()
        self.redis.recover()
        self.postgres.start()
        self.relieve_redis()
        while self._undo:
            heapq.heappop(self._undo)[2]()
            time.sleep(0.05)
        self.finish_asides()
        self.surely(lambda: self.change_settings(outbox_max_log_size="0"))
        self.set_clock(self.postgres.latest)  # what waits for a time of day has come by then
        for stream in self.streams:  # a Redis that lost writes may have lost that it was healed
            self.heal_stream(stream)

    def later(self, seconds, function):
        heapq.heappush(self._undo, (time.monotonic() + seconds, next(self._numbers), function))

    def crashed(self, seconds=0):
        now = time.monotonic()
        self.crashes.append((now - GRACE, now + seconds + GRACE))

    def connect(self, patience=3):
        """Connect; while the server recovers, wait for it, but not for long."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return self.postgres.connect()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
            self.undo_due()
            time.sleep(0.05)

    def query(self, query, *arguments, patience=3):
        with self.connect(patience) as connection:
            connection.execute("SET statement_timeout = '2s'")  # what is undone must not wait for long
            cursor = connection.execute(query, arguments or None)
            return cursor.fetchall() if cursor.description else None

    # PostgreSQL

    def pid(self, condition, which=0.0):
        pids = self.query(f"SELECT pid FROM pg_stat_activity WHERE {condition} ORDER BY pid")
        if not pids:
            raise Skipped("there is none")
        return pids[int(which * len(pids))][0]

    def kill(self, pid):
        self.crashed()
        self._killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)

    def kill_backend(self, which):
        self.kill(self.pid("usename = 'shop'", which))

    def kill_dispatcher(self):
        self.kill(self.pid("backend_type = 'outbox dispatcher'"))

    def kill_launcher(self):
        self.kill(self.pid("backend_type = 'outbox launcher'"))

    def terminate_backend(self, which):
        os.kill(self.pid("usename = 'shop'", which), signal.SIGTERM)

    def terminate_dispatcher(self):
        os.kill(self.pid("backend_type = 'outbox dispatcher'"), signal.SIGTERM)

    def terminate_launcher(self):
        os.kill(self.pid("backend_type = 'outbox launcher'"), signal.SIGTERM)

    def cancel_backend(self, which):
        os.kill(self.pid("usename = 'shop'", which), signal.SIGINT)

    def cancel_dispatcher(self):
        os.kill(self.pid("backend_type = 'outbox dispatcher'"), signal.SIGINT)

    def kill_postmaster(self, seconds):
        # Not before it knows that a process was killed: one that waits for a lock of that process would be left, and wait for ever.
        if self._armed_until or time.monotonic() < self._killed_at + GRACE:
            raise Skipped("a process was killed just now, or may be")
        self.end_postgres(signal.SIGKILL, seconds)

    def stop_postgres_immediate(self, seconds):
        self.end_postgres(self.postgres.IMMEDIATE, seconds)

    def stop_postgres_fast(self, seconds):
        # Not while it recovers from a crash: before redo begins, a fast shutdown of
        # PostgreSQL 15 waits for ever for a checkpointer that is not told to end.
        self.query("SELECT 1")
        self.end_postgres(self.postgres.FAST, seconds)

    def end_postgres(self, number, seconds):
        if not self.postgres.is_running:
            raise Skipped("it does not run")
        self.crashed(seconds)
        self.postgres.end(number)
        self.later(seconds, self.postgres.start)

    def move_server(self, seconds, lease_is_lost):
        """PostgreSQL goes down and comes back as another server, as one does on which a copy of the data goes on."""
        self.query("SELECT 1")
        self.end_postgres(self.postgres.IMMEDIATE, seconds)
        file = os.path.join(self.postgres.folder, "outbox.server")
        if os.path.exists(file):  # a dispatcher has started
            shutil.copy2(file, f"{file}.copy")
            os.replace(f"{file}.copy", file)
        if lease_is_lost:
            self.surely(self.lose_lease)

    def lose_lease(self):
        for server in self.servers(None):
            client = server.client(1)
            for key in client.scan_iter(match="outbox:lease:*", count=10_000):
                try:
                    client.delete(key)
                except redis.ResponseError:  # a replica; or it is on its way
                    pass

    def die_at_kill_point(self, which, manner, times, seconds):
        """A process dies at a line of the source, if it comes there in time."""
        if self._armed_until:
            raise Skipped("one is armed")
        points = kill_points.names()
        name = points[int(which * len(points))]
        self.say(f"  armed: {name}")
        self._armed_until = time.monotonic() + seconds
        self._died = manner if manner != "end" else None
        self._armed_since = time.monotonic()
        kill_points.arm(self.postgres.folder, name, manner, times)

    def look_at_kill_point(self):
        """See what has become of a kill point that is armed; a server that it has ended starts again."""
        if not self._armed_until:
            return
        has_fired = kill_points.has_fired(self.postgres.folder)
        if not has_fired and time.monotonic() > self._armed_until:
            has_fired = not kill_points.disarm(self.postgres.folder)
            self._armed_until = None
        if not has_fired:
            return
        self._armed_until = None
        self._killed_at = time.monotonic()
        self.say("  a process died at the kill point")
        self.done["died at a kill point"] = self.done.get("died at a kill point", 0) + 1
        if self._died:
            self.crashes.append((self._armed_since - GRACE, time.monotonic() + GRACE))
        if self._died == "server":
            self.later(1, self.postgres.start)

    def disarm(self):
        if self._armed_until:
            self._armed_until = time.monotonic()
            self.look_at_kill_point()

    def jump_clock(self, seconds):
        """Set PostgreSQL's clock forward or back while it runs; the clocks of Redis and of the clients are right."""
        if not self.postgres.has_clock:
            raise Skipped("there is no compiler to make a wrong clock with")
        self.set_clock(round(self.postgres.clock / LEAP) * LEAP + seconds)

    def leap_clock(self, seconds):
        """Set it by an hour. Not back while it runs: PostgreSQL's own timeouts would last an hour longer."""
        if not self.postgres.has_clock:
            raise Skipped("there is no compiler to make a wrong clock with")
        if self.postgres.clock < LEAP / 2:
            self.leaps.append(time.monotonic())
            self.set_clock(self.postgres.clock + LEAP)
        else:
            self.query("SELECT 1")
            self.end_postgres(self.postgres.FAST, seconds)
            self.set_clock(self.postgres.clock - LEAP)

    def times_ahead(self):
        """(from, to): when PostgreSQL's clock was ahead of the others."""
        return self._times_ahead + [(self._clock_set_at, float("inf"))] * (self.postgres.clock > 0)

    def set_clock(self, offset):
        now = time.monotonic()
        if self.postgres.clock > 0:
            self._times_ahead.append((self._clock_set_at, now))
        self._clock_set_at = now
        self.postgres.set_clock(offset)

    def surely(self, function):
        """Undo something; later, if the server does not answer now."""
        try:
            function()
        except (psycopg.Error, redis.RedisError):
            self.later(0.5, lambda: self.surely(function))

    # Redis and the network; of a cluster, one node, or all if none is named

    def kill_redis(self, seconds, node=0):
        server = self.running(node)
        server.end(signal.SIGKILL)
        self.later(seconds, server.start)

    def rewind_redis(self, back):
        """Kill it; it restarts without what it wrote in the last seconds."""
        server = self.running(0)
        size = server.size_before(back)
        if size is None:
            raise Skipped("too early")
        server.end(signal.SIGKILL)
        server.forget(size)
        server.start()

    def freeze_redis(self, seconds, node=0):
        server = self.running(node)
        server.freeze()
        self.later(seconds, server.thaw)

    def hinder_redis(self, how, seconds, node=None):
        self.later(seconds, self.relieve_redis)
        if how == "small":
            self.limit_is_small.value = 1
        for client in [server.client(1) for server in self.servers(node)]:
            if how == "OOM":
                client.config_set("maxmemory", 1)
            elif how == "NOREPLICAS":
                client.config_set("min-replicas-to-write", 2)
            elif how == "READONLY":
                client.execute_command("REPLICAOF", "127.0.0.1", 1)
            elif how == "NOSCRIPT":
                client.script_flush()
            elif how == "small":
                client.config_set("proto-max-bulk-len", "1mb")
            elif how == "kick":
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def forbid_destination(self, dest, seconds):
        """Revoke the permission to write there."""
        self.later(seconds, self.relieve_redis)
        others = [f"~{other}{suffix}" for other in self.destinations if other != dest for suffix in ("", ":*")]
        for server in self.servers(None):
            server.client(1).execute_command("ACL", "SETUSER", "default", "resetkeys", "~outbox:*", "~*.aside", *others)

    def forbid_streams(self, streams, seconds, node=None):
        """The same for streams, also single partitions; in a cluster perhaps on one of its nodes only."""
        self.later(seconds, self.relieve_redis)
        others = [f"~{other}" for other in self.streams if other not in streams]
        for server in self.servers(node):
            server.client(1).execute_command("ACL", "SETUSER", "default", "resetkeys", "~outbox:*", "~*.aside", *others)

    def relieve_redis(self):
        def relieve():
            for server in self.servers(None):
                server.relieve()
            self.limit_is_small.value = 0

        self.surely(relieve)

    def running(self, node):
        server = self.redis.nodes[node]
        if not server.is_running:
            raise Skipped("it does not run")
        return server

    def servers(self, node):
        """A node, or all that run."""
        servers = self.redis.nodes if node is None else [self.running(node)]
        if any(server.is_frozen for server in servers):
            raise redis.TimeoutError("it is frozen")
        return [server for server in servers if server.is_running]

    def network(self, node):
        """In front of a node, or of all."""
        return self.proxies if node is None else [self.proxies[node]]

    def delay_network(self, seconds, delay, node=None):
        for proxy in self.network(node):
            proxy.delay(delay)
            self.later(seconds, lambda proxy=proxy: proxy.delay(0))

    def cut_network(self, node=None):
        for proxy in self.network(node):
            proxy.cut()

    def truncate_network(self, direction, size, node=None):
        for proxy in self.network(node):
            proxy.truncate(direction, size)

    def hold_network(self, seconds, node=None):
        for proxy in self.network(node):
            proxy.hold()
            self.later(seconds, proxy.release)

    def refuse_network(self, seconds, node=None):
        for proxy in self.network(node):
            proxy.refuse(True)
            proxy.cut()
            self.later(seconds, lambda proxy=proxy: proxy.refuse(False))

    def break_stream(self, stream, seconds):
        """Put a key of another type in its place."""
        self.redis.must_stay(stream)
        client = self.redis.server_of(stream, 1)
        if client.type(stream) == b"string":
            raise Skipped("it is broken")
        try:
            with client.pipeline(transaction=True) as together:
                if client.exists(stream):
                    together.rename(stream, aside(stream))
                together.set(stream, "no stream")
                together.execute()
        finally:  # a Redis that does not answer now may do it later
            self.later(seconds, lambda: self.heal_stream(stream))

    def heal_stream(self, stream):
        def heal():
            self.redis.must_stay(stream)
            client = self.redis.server_of(stream, 1)
            if client.type(stream) != b"string":
                return
            if client.exists(aside(stream)):
                client.rename(aside(stream), stream)
            else:
                client.delete(stream)

        self.surely(heal)

    def let_messages_die(self, attempts, streams, seconds):
        """Break streams, while a message is dead after a few attempts."""
        try:
            self.change_settings(outbox_max_attempts=attempts)
        finally:
            self.later(seconds, self.let_no_message_die)
        for stream in streams:
            self.break_stream(stream, seconds)

    def let_no_message_die(self):
        self.surely(lambda: self.change_settings(outbox_max_attempts=MANY_ATTEMPTS, patience=0))


def aside(stream):
    """In the same hash slot."""
    return f"{{{stream}}}.aside"
