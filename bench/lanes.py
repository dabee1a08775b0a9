"""What hash slots in use cost: lanes.py MESSAGES ROUNDS REDIS_SOCKET...

For each number of lanes:

first use   one transaction with a message for each lane, none of which was used before
backlog     so many messages, one lane after the other, that are in a window when the clock starts
one lane    the same, all for one of the lanes
idle        nothing is sent for some seconds
reconnect   all connections to Redis are closed; then one message is committed

Processor time is that of the dispatcher, and that of all Redis together.
"""
import binascii
import os
import statistics
import sys
import time

import redis
from servers import connect, cpu_of

SLOTS = 16384
CASES = tuple(int(lanes) for lanes in os.environ.get("BENCH_LANES", "1 16 256 4096 16384").split())
IDLE = 5  # seconds
BODY = "repeat('x', 100)"


def slot_of(key):
    return binascii.crc_hqx(key.encode(), 0) % SLOTS


def streams(lanes):
    """A name for each of so many slots, spread evenly."""
    wanted = {n * SLOTS // lanes for n in range(lanes)}
    names, number = [], 0
    while wanted:
        name = f"s{number}"
        if slot_of(name) in wanted:
            wanted.remove(slot_of(name))
            names.append(name)
        number += 1
    return names


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("it does not come true")
        time.sleep(0.002)


class Case:
    """A database and an empty cluster."""

    def __init__(self, sockets, lanes):
        self.lanes, self.names = lanes, streams(lanes)
        self.nodes = [redis.Redis(unix_socket_path=socket) for socket in sockets]
        self.redis = [node.info("server")["process_id"] for node in self.nodes]

    def __enter__(self):
        for node in self.nodes:
            node.flushall()
        with connect("main") as admin:
            admin.execute("CREATE DATABASE lanes")
        self.connection = connect("main", "lanes")
        self.connection.execute("CREATE EXTENSION outbox")
        self.connection.execute("CREATE TABLE stream (number integer PRIMARY KEY, name text)")
        with self.connection.cursor().copy("COPY stream FROM STDIN") as copy:
            for row in enumerate(self.names):
                copy.write_row(row)
        self.connection.execute("ANALYZE stream")
        wait_until(lambda: self.status("dispatcher_state") == "idle")
        self.dispatcher = [self.status("dispatcher_pid")]
        return self

    def __exit__(self, *exception):
        self.connection.close()
        with connect("main") as admin:
            admin.execute("DROP DATABASE lanes")

    def status(self, column):
        return self.connection.execute(f"SELECT {column} FROM outbox.status", prepare=True).fetchone()[0]

    def enqueue(self, messages, lanes):
        self.connection.execute(
            f"SELECT count(outbox_enqueue(name, {BODY})) FROM (SELECT name FROM generate_series(0, %s) i "
            "JOIN stream ON number = i %% %s ORDER BY i OFFSET 0) s", (messages - 1, lanes))

    def measured(self, work, messages=1):
        """Seconds that a piece of work takes, and microseconds of processor time for each of its messages."""
        before, start = (cpu_of(self.dispatcher), cpu_of(self.redis)), time.monotonic()
        work()
        seconds = time.monotonic() - start
        after = (cpu_of(self.dispatcher), cpu_of(self.redis))
        return [seconds, *((b - a) / messages for a, b in zip(before, after))]

    def first_use(self):
        def work():
            self.enqueue(self.lanes, self.lanes)
            wait_until(lambda: self.status("sent") >= self.lanes)
        return self.measured(work, self.lanes)

    def backlog(self, messages, lanes):
        self.connection.execute("SELECT outbox_pause()")
        windows = self.status("windows")
        self.enqueue(messages, lanes)
        wait_until(lambda: self.status("windows") > windows)
        time.sleep(1)
        self.connection.execute("CHECKPOINT")
        all_of_them = self.status("sent") + messages

        def work():
            self.connection.execute("SELECT outbox_resume()")
            wait_until(lambda: self.status("sent") >= all_of_them)
        return self.measured(work, messages)

    def idle(self):
        wait_until(lambda: self.status("dispatcher_state") == "idle")
        _, dispatcher, servers = self.measured(lambda: time.sleep(IDLE))
        return [dispatcher / IDLE / 1e6, servers / IDLE / 1e6]

    def reconnect(self):
        name = self.names[0]
        node = next(node for node in self.nodes if node.execute_command("CLUSTER COUNTKEYSINSLOT", slot_of(name)) > 0)
        last = node.xrevrange(name, count=1)[0][0]
        for each in self.nodes:
            each.client_kill_filter(_type="normal", skipme=True)

        def work():
            self.connection.execute(f"SELECT outbox_enqueue(%s, {BODY})", (name,))
            node.xread({name: last}, block=60_000)
        return self.measured(work)


def measure(sockets, lanes, messages):
    with Case(sockets, lanes) as case:
        first = case.first_use()
        spread = case.backlog(messages, lanes)
        single = case.backlog(messages, 1)
        idle = case.idle()
        reconnects = [case.reconnect() for _ in range(3)]
    return [*first, messages / spread[0], *spread[1:], messages / single[0], *single[1:], *idle, *medians(reconnects)]


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def show(label, lanes, row):
    print(f"{label}, {lanes:5} lanes: first use {row[0]:6.3f} s, CPU of dispatcher and Redis {row[1]:5.1f} {row[2]:5.1f} us each; "
          f"backlog {row[3]:7.0f}/s {row[4]:5.2f} {row[5]:5.2f} us; one lane {row[6]:7.0f}/s {row[7]:5.2f} {row[8]:5.2f} us; "
          f"idle {row[9]:.4f} {row[10]:.4f} of a core; reconnect {row[11] * 1000:5.0f} ms, {row[12] / 1000:5.1f} {row[13] / 1000:5.1f} ms of CPU", flush=True)


def main(messages, rounds, sockets):
    results = {lanes: [] for lanes in CASES}
    for n in range(rounds):
        turn = n % len(CASES)
        for lanes in CASES[turn:] + CASES[:turn]:
            results[lanes].append(measure(sockets, lanes, messages))
            show(f"round {n + 1}", lanes, results[lanes][-1])
    for lanes in CASES:
        show("median ", lanes, medians(results[lanes]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
