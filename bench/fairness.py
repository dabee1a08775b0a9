"""What refusing destinations cost the others: fairness.py PGHOST REDIS_SOCKET ROUNDS SECONDS

Three things, for each number of refusing destinations:

first       all of them are written to in one transaction, then `good`: how long
            does that one message take?
throughput  four clients at full speed: messages a second that arrive in `good`,
            until the last one is there; and how much of the dispatcher's CPU
            each of them takes with all that is done for the others meanwhile
latency     200 transactions a second: from the return of COMMIT until a blocked
            XREAD has the message; refused messages are tried again meanwhile
"""
import os
import re
import statistics
import subprocess
import sys
import threading
import time

import redis
from servers import connect

CASES = (0, 1, 100, 10000)
ACCEPTING = 100  # other destinations in the case 0
CLIENTS = 4
RATE = 200  # transactions a second while latency is measured
SCRIPT = """\\set n random(1, :others)
SELECT outbox_enqueue('good', repeat('x', 100)), outbox_enqueue('other ' || :n, repeat('x', 100));
"""


class Case:
    """A database and an empty Redis, with some destinations that refuse."""

    def __init__(self, host, socket, refusing):
        self.host, self.socket = host, socket
        self.refusing = refusing
        self.others = refusing or ACCEPTING
        self.redis = redis.Redis(unix_socket_path=socket)

    def __enter__(self):
        self.redis.flushall()
        with connect("main") as admin:
            admin.execute("CREATE DATABASE fairness")
        self.connection = connect("main", "fairness")
        self.connection.execute("CREATE EXTENSION outbox")
        with self.redis.pipeline(transaction=False) as pipeline:
            for n in range(1, self.refusing + 1):
                pipeline.set(f"other {n}", "no stream")
            pipeline.execute()
        self.wait_until_idle()
        return self

    def __exit__(self, *exception):
        self.connection.close()
        with connect("main") as admin:
            admin.execute("DROP DATABASE fairness")

    def wait_until_idle(self):
        while self.connection.execute("SELECT dispatcher_state FROM outbox.status").fetchone()[0] != "idle":
            time.sleep(0.01)

    def first(self):
        with self.connection.transaction():
            self.connection.execute("SELECT outbox_enqueue('other ' || i, 'x') FROM generate_series(1, %s) i", (self.others,))
        self.connection.execute("SELECT outbox_enqueue('first', 'x'::text)")
        start = time.monotonic()
        self.redis.xread({"first": "0"}, block=600_000)
        return time.monotonic() - start

    def load(self, *options):
        return subprocess.Popen(
            ["pgbench", "-n", "-M", "prepared", "-h", self.host, "-U", "postgres", "-f", "-",
             "-D", f"others={self.others}", *options, "fairness"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def cpu(self):
        """Seconds of CPU that the dispatcher has used."""
        pid = self.connection.execute("SELECT dispatcher_pid FROM outbox.status").fetchone()[0]
        with open(f"/proc/{pid}/stat") as stat:
            return sum(int(ticks) for ticks in stat.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

    def throughput(self, seconds):
        start, before = time.monotonic(), self.cpu()
        out, _ = self.load("-c", str(CLIENTS), "-j", "1", "-T", str(seconds)).communicate(SCRIPT)
        count = int(re.search(r"actually processed: (\d+)", out).group(1))
        while self.redis.xlen("good") < count:
            time.sleep(0.005)
        return count / (time.monotonic() - start), (self.cpu() - before) / count * 1e6

    def latency(self, seconds):
        number = seconds * 50
        load = self.load("-R", str(RATE), "-T", str(seconds + 2))
        load.stdin.write(SCRIPT)
        load.stdin.close()
        time.sleep(1)
        arrived, returned, ready = {}, {}, threading.Event()
        reader = threading.Thread(target=self.read_arrivals, args=(number, arrived, ready))
        reader.start()
        ready.wait()
        for n in range(number):
            time.sleep(0.02)
            self.connection.execute("SELECT outbox_enqueue('latency', %s::text)", (str(n),))
            returned[n] = time.monotonic()
        reader.join()
        load.stdout.read()
        load.wait()
        return sorted(arrived[n] - returned[n] for n in range(number))

    def read_arrivals(self, number, arrived, ready):
        connection = redis.Redis(unix_socket_path=self.socket)
        last = "0-0"
        ready.set()
        while len(arrived) < number:
            for _, entries in connection.xread({"latency": last}, block=10000) or []:
                now = time.monotonic()
                for last, fields in entries:
                    arrived[int(fields[b"body"])] = now


def measure(host, socket, refusing, seconds):
    with Case(host, socket, refusing) as case:
        first = case.first()
        throughput, cpu = case.throughput(seconds)
        delays = case.latency(seconds)
    return first, throughput, cpu, delays[len(delays) // 2] * 1e6, delays[len(delays) * 99 // 100] * 1e6


def show(label, refusing, values, ratios):
    first, throughput, cpu, p50, p99 = values
    print(f"{label}, {refusing:5} refuse: first after {first:6.3f} s, {throughput:6.0f} messages/s ({ratios[1]:.2f}), "
          f"CPU {cpu:3.0f} us each, latency p50 {p50:5.0f} us ({ratios[3]:.2f}), p99 {p99:6.0f} us", flush=True)


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def main(host, socket, rounds, seconds):
    """Ratios are to the case 0 of the same round: the machine may be slower in another."""
    results = {refusing: [] for refusing in CASES}
    ratios = {refusing: [] for refusing in CASES}
    for n in range(rounds):
        turn = n % len(CASES)
        for refusing in CASES[turn:] + CASES[:turn]:
            results[refusing].append(measure(host, socket, refusing, seconds))
        for refusing in CASES:
            ratios[refusing].append([value / base for value, base in zip(results[refusing][-1], results[0][-1])])
            show(f"round {n + 1}", refusing, results[refusing][-1], ratios[refusing][-1])
    for refusing in CASES:
        show("median ", refusing, medians(results[refusing]), medians(ratios[refusing]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
