"""Measures the workers of examples/partitions, and disturbs them; see bench/consumers."""

import collections
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import psycopg
import redis

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/partitions")
PARTITIONS, KEYS = 32, 400
PAUSE = 5  # ms that the handler takes
LEASE = 2000  # ms
LIMIT = 60  # seconds without progress after which what is not handled counts as lost

OUT_OF_ORDER = """
SELECT count(*) FROM (SELECT (body::json ->> 'number')::integer AS number,
    row_number() OVER (PARTITION BY key ORDER BY place) AS expected FROM handled) t WHERE number <> expected
"""


class Bench:
    def __init__(self, host, socket):
        self.conninfo = f"host={host} dbname=postgres user=postgres"
        self.url = f"unix://{socket}"
        self.server = redis.Redis(unix_socket_path=socket)
        self.database = psycopg.connect(self.conninfo, autocommit=True)
        self.database.execute("CREATE EXTENSION IF NOT EXISTS outbox")
        with open(os.path.join(FOLDER, "schema.sql")) as file:
            self.database.execute(file.read())

    def ask(self, query, *values):
        return self.database.execute(query, values).fetchone()[0]

    def spread(self, stream, partitions):
        self.ask("SELECT outbox_set_destination(%s, partitions => %s::integer)", stream, partitions)

    def send(self, stream, first, last):
        self.database.execute(
            "SELECT outbox_enqueue(%s, jsonb_build_object('number', i), message_id => format('%%s-%%s-%%s', %s::text, k, i), key => 'key' || k) "
            "FROM generate_series(%s::integer, %s::integer) i, generate_series(1, %s) k",
            (stream, stream, first, last, KEYS),
        )

    def handled(self):
        return self.ask("SELECT count(*) FROM handled")

    def start(self, stream, group, name, pause):
        command = [sys.executable, "worker.py", self.conninfo, self.url, stream, group, name, str(LEASE), str(pause)]
        return subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def rate(self, count, group, seconds):
        """Messages a second of this many workers, once each has its share of the partitions."""
        self.database.execute("TRUNCATE handled, consumer_position")
        self.ask("SELECT outbox_create_endpoint(%s)", group)
        workers = [self.start("backlog", group, f"w{i}", PAUSE) for i in range(count)]
        shares = []
        streams = PARTITIONS + 1  # with the one without a number
        while sorted(shares) != sorted((streams + i) // count for i in range(count)):
            time.sleep(0.1)
            shares = collections.Counter(self.server.hvals(f"{{{group}:backlog}}:partitions")).values()
        time.sleep(LEASE / 1000)
        before, begin = self.handled(), time.monotonic()
        time.sleep(seconds)
        rate = (self.handled() - before) / (time.monotonic() - begin)
        end_all(workers)
        return rate

    def chaos(self, seconds, seed):
        """Disturb four workers; return what was done, and how many messages are wrong."""
        self.database.execute("TRUNCATE handled, consumer_position")
        chance, done, sent = random.Random(seed), collections.Counter(), 0
        workers = {i: self.start("chaos", "billing", f"w{i}", 1) for i in range(4)}
        stopped = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send("chaos", sent + 1, sent + 1)
            sent += 1
            time.sleep(chance.uniform(0.2, 1))
            i = chance.choice(list(workers))
            if i in stopped:
                if time.monotonic() > stopped[i]:
                    workers[i].send_signal(signal.SIGCONT)
                    del stopped[i]
            elif workers[i].poll() is not None:
                workers[i] = self.start("chaos", "billing", f"w{i}-{sent}", 1)
            else:
                what = chance.choices(["kill", "stop", "leave", "change", "nothing"], [10, 20, 5, 5, 60])[0]
                done[what] += 1
                if what == "kill":
                    workers[i].kill()
                elif what == "stop":
                    workers[i].send_signal(signal.SIGSTOP)
                    stopped[i] = time.monotonic() + chance.choice([0.5, 3, 6])
                elif what == "leave":
                    workers[i].terminate()
                elif what == "change":
                    self.spread("chaos", chance.randint(4, PARTITIONS))
        for worker in workers.values():
            worker.send_signal(signal.SIGCONT)
        workers["last"] = self.start("chaos", "billing", "last", 0)
        handled, end = self.handled(), time.monotonic() + LIMIT
        while handled < sent * KEYS and time.monotonic() < end:
            time.sleep(0.5)
            before, handled = handled, self.handled()
            if handled > before:
                end = time.monotonic() + LIMIT
        end_all(workers.values())
        handled = self.handled()
        different = self.ask("SELECT count(DISTINCT (key, body)) FROM handled")
        return done, sent * KEYS, sent * KEYS - different, handled - different, self.ask(OUT_OF_ORDER)


def end_all(workers):
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


def main(host, socket, seconds, rounds, chaos, seed):
    sys.stdout.reconfigure(line_buffering=True)
    bench = Bench(host, socket)
    bench.spread("backlog", PARTITIONS)
    needed = 2 * 8 * (float(seconds) + 20) * 1000 / PAUSE
    bench.send("backlog", 1, int(needed / KEYS) + 1)
    rates = collections.defaultdict(list)
    for turn in range(int(rounds)):
        for count in (1, 2, 4, 8):
            rates[count].append(bench.rate(count, f"group-{count}-{turn}", float(seconds)))
    one = statistics.median(rates[1])
    print(f"A handler that takes {PAUSE} ms, {PARTITIONS} partitions; medians of {rounds} rounds of {seconds} seconds:")
    for count, values in rates.items():
        print(f"{count} workers: {statistics.median(values):,.0f} messages/s ({min(values):,.0f} to {max(values):,.0f}), "
              f"{statistics.median(values) / one:.1f} times one")
    bench.spread("chaos", 8)
    done, sent, lost, twice, order = bench.chaos(float(chaos), int(seed))
    print(f"{chaos} seconds with", ", ".join(f"{number} x {what}" for what, number in sorted(done.items()) if what != "nothing") + ":")
    print(f"{sent:,} messages of {KEYS} keys: {lost} lost, {twice} handled twice, {order} out of order")
    sys.exit(1 if lost or twice or order else 0)


main(*sys.argv[1:])
