"""Does to the servers what the plan says, and undoes it in time."""

import heapq
import itertools
import os
import signal
import time

import psycopg
import redis

from administration import Administration, Skipped, first_line

LEAP = 3600  # seconds by which the clock is set when it is set far
MANY_ATTEMPTS = 1_000_000
GRACE = 5  # seconds within which WAL that was not waited for is on disk


class Events(Administration):
    def __init__(self, postgres, server, proxy, scheme, destinations, streams, limit_is_small, say):
        super().__init__()
        self.postgres = postgres
        self.redis = server
        self.proxy = proxy
        self.destinations = destinations
        self.streams = streams
        self.store_url = f"{scheme}://127.0.0.1:{proxy.port}/1"
        self.limit_is_small = limit_is_small  # a flag that clients see: Redis refuses large messages now
        self.say = say
        self.done = {}  # kind → how often
        self.crashes = []  # (from, to): what was committed asynchronously then may be gone
        self.leaps = []  # when the clock of PostgreSQL was set so far forward that ids may be forgotten
        self._undo = []  # heap of (due, number, function)
        self._numbers = itertools.count()
        self._sizes = []  # (time, bytes that Redis had written)
        self._holding = None  # session that holds tables
        self._clock_set_at = 0
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
        if self.redis.is_running and os.path.exists(self.redis.writes):
            self._sizes.append((time.monotonic(), os.path.getsize(self.redis.writes)))
        while self._undo and self._undo[0][0] <= time.monotonic():
            heapq.heappop(self._undo)[2]()

    def heal(self):
        """Undo everything."""
        self.proxy.heal()
        self.redis.thaw()
        self.redis.start()
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

    # Redis and the network

    def kill_redis(self, seconds):
        self.redis_must_run()
        self.redis.end(signal.SIGKILL)
        self.later(seconds, self.redis.start)

    def rewind_redis(self, back):
        """Kill it; it restarts without what it wrote in the last seconds."""
        self.redis_must_run()
        past = [size for at, size in self._sizes if at <= time.monotonic() - back]
        if not past:
            raise Skipped("too early")
        self.redis.end(signal.SIGKILL)
        self.redis.forget(past[-1])
        self._sizes.clear()
        self.redis.start()

    def freeze_redis(self, seconds):
        self.redis_must_run()
        self.redis.freeze()
        self.later(seconds, self.redis.thaw)

    def hinder_redis(self, how, seconds):
        client = self.quick_redis()
        if how == "OOM":
            client.config_set("maxmemory", 1)
        elif how == "NOREPLICAS":
            client.config_set("min-replicas-to-write", 1)
        elif how == "READONLY":
            client.execute_command("REPLICAOF", "127.0.0.1", 1)
        elif how == "NOSCRIPT":
            client.script_flush()
        elif how == "small":
            client.config_set("proto-max-bulk-len", "1mb")
            self.limit_is_small.value = 1
        elif how == "kick":
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        self.later(seconds, self.relieve_redis)

    def forbid_destination(self, dest, seconds):
        """Revoke the permission to write there."""
        others = [f"~{other}{suffix}" for other in self.destinations if other != dest for suffix in ("", ":*")]
        self.quick_redis().execute_command("ACL", "SETUSER", "default", "resetkeys", "~outbox:*", "~*.aside", *others)
        self.later(seconds, self.relieve_redis)

    def relieve_redis(self):
        def relieve():
            client = self.quick_redis()
            client.config_set("maxmemory", 0)
            client.config_set("min-replicas-to-write", 0)
            client.config_set("proto-max-bulk-len", "512mb")
            self.limit_is_small.value = 0
            client.execute_command("REPLICAOF", "NO", "ONE")
            client.execute_command("ACL", "SETUSER", "default", "allkeys")

        self.surely(relieve)

    def redis_must_run(self):
        if not self.redis.is_running:
            raise Skipped("it does not run")

    def delay_network(self, seconds, delay):
        self.proxy.delay(delay)
        self.later(seconds, lambda: self.proxy.delay(0))

    def cut_network(self):
        self.proxy.cut()

    def truncate_network(self, direction, size):
        self.proxy.truncate(direction, size)

    def hold_network(self, seconds):
        self.proxy.hold()
        self.later(seconds, self.proxy.release)

    def refuse_network(self, seconds):
        self.proxy.refuse(True)
        self.proxy.cut()
        self.later(seconds, lambda: self.proxy.refuse(False))

    def break_stream(self, stream, seconds):
        """Put a key of another type in its place."""
        client = self.quick_redis()
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
            client = self.quick_redis()
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

    def quick_redis(self):
        return redis.Redis(unix_socket_path=self.redis.socket, socket_timeout=1)


def aside(stream):
    return stream + ".aside"
