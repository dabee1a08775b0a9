"""What large things cost, and whom: large.py PGHOST REDIS_SOCKET

Three observers look on, each a process of its own: a caller, who commits one
message every 10 ms; an administrator, who reads outbox.status 20 times a second;
and one who reads the memory of the dispatcher (RssAnon: what it has beyond shared
buffers). For each case there is a line of them, beside that of an idle server and
that of a small backlog.

Redis is away when its socket has another name.
"""
import multiprocessing
import os
import subprocess
import sys
import time

import psycopg
import redis

HOST, SOCKET = sys.argv[1:3]
BODY = "repeat('x', 100)"


def size(name, default):
    return int(os.environ.get("BENCH_" + name, default))


def connect(database="postgres"):
    return psycopg.connect(host=HOST, dbname=database, user="postgres", autocommit=True)


def sql(query, *values, database="postgres"):
    with connect(database) as connection:
        cursor = connection.execute(query, values or None)
        return cursor.fetchone()[0] if cursor.description else None


def status(column):
    return sql(f"SELECT {column} FROM outbox.status")


def wait_until(condition, pause=0.01):
    while not condition():
        time.sleep(pause)


# Observers.

def timed(connection, query):
    start = time.monotonic()
    connection.execute(query, prepare=True)
    return (time.monotonic() - start) * 1000


def every(seconds, stop):
    due = time.monotonic()
    while not stop.is_set():
        yield
        due = max(due + seconds, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def call(stop, results):
    with connect() as connection:
        results.put(("call", [timed(connection, f"SELECT outbox_enqueue('caller', {BODY})") for _ in every(0.01, stop)]))


def administrate(stop, results):
    with connect() as connection:
        results.put(("status", [timed(connection, "SELECT * FROM outbox.status") for _ in every(0.05, stop)]))


def private_memory(pid):
    try:
        with open(f"/proc/{pid}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
    except (OSError, StopIteration):
        return 0


def weigh(stop, results):
    pid = status("dispatcher_pid")
    results.put(("memory", [private_memory(pid) for _ in every(0.005, stop)]))


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Watch:
    """Observes a case, and says in the end what was seen."""

    def __init__(self, name):
        self.name, self.more = name, ""

    def __enter__(self):
        self.stop, self.results = multiprocessing.Event(), multiprocessing.Queue()
        self.observers = [multiprocessing.Process(target=target, args=(self.stop, self.results))
                          for target in (call, administrate, weigh)]
        for observer in self.observers:
            observer.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *exception):
        self.stop.set()
        seen = dict(self.results.get(timeout=60) for _ in self.observers)
        for observer in self.observers:
            observer.join()
        calls, views = seen["call"], seen["status"]
        print(f"{self.name:32} {self.more:46} dispatcher {max(seen['memory']):5.1f} MB at most, {seen['memory'][-1]:5.1f} at the end; "
              f"status p50 {share(views, .5):4.1f} p99 {share(views, .99):5.1f} slowest {max(views):5.1f} ms; "
              f"caller p50 {share(calls, .5):4.2f} p99 {share(calls, .99):5.2f} slowest {max(calls):6.1f} ms", flush=True)


# What the cases are made of.

def send_away():
    os.rename(SOCKET, SOCKET + ".away")
    redis.Redis(unix_socket_path=SOCKET + ".away").client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: status("redis_state") == "down")


def bring_back():
    os.rename(SOCKET + ".away", SOCKET)


def settle():
    """Nothing is pending, streams are empty, and what was sent is not in the way."""
    wait_until(lambda: status("pending") == 0, 0.1)
    redis.Redis(unix_socket_path=SOCKET).eval(
        "for _, key in ipairs(redis.call('KEYS', '*')) do if string.sub(key, 1, 7) ~= 'outbox:' then redis.call('UNLINK', key) end end", 0)
    sql("CHECKPOINT")


def fill(messages, per_transaction, script, clients=2):
    """Runs a script of pgbench; :per is the number of messages in a transaction."""
    subprocess.run(["pgbench", "-n", "-h", HOST, "-U", "postgres", "-c", str(clients), "-j", "1", "-f", "-",
                    "-D", f"per={per_transaction}", "-t", str(messages // per_transaction // clients), "postgres"],
                   input=script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, check=True)


def ticks(pids):
    """Seconds of CPU that processes have used."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as line:
            total += sum(int(ticks) for ticks in line.read().rsplit(")", 1)[1].split()[11:13])
    return total / os.sysconf("SC_CLK_TCK")


class Sent:
    """Counts what is sent from here on, and what CPU the dispatcher takes for it."""

    def __init__(self):
        self.connection = connect()
        self.pid = self.connection.execute("SELECT dispatcher_pid FROM outbox.status").fetchone()[0]
        self.before, self.cpu = self.count(), ticks([self.pid])

    def count(self):
        return self.connection.execute("SELECT sent FROM outbox.status").fetchone()[0]

    def rate(self, messages):
        """Messages a second, from the first one on; microseconds of CPU for one."""
        wait_until(lambda: self.count() > self.before, 0.01)
        start, first = time.monotonic(), self.count()
        wait_until(lambda: self.count() >= self.before + messages, 0.01)
        rate = (self.count() - first) / (time.monotonic() - start)
        self.connection.close()
        return rate, (ticks([self.pid]) - self.cpu) / messages * 1e6


small = None  # messages a second of a small backlog, and CPU for one


def show_rate(watch, rate):
    watch.more = f"{rate[0]:.0f} messages/s, CPU {rate[1]:.1f} us"
    if small:
        watch.more += f" ({rate[0] / small[0]:.2f}, {rate[1] / small[1]:.2f})"


# The cases.

def idle():
    with Watch("idle"):
        time.sleep(10)


def drain(name, messages, per_transaction, script):
    send_away()
    fill(messages, per_transaction, script)
    with Watch(name) as watch:
        sent = Sent()
        bring_back()
        rate = sent.rate(messages)
        show_rate(watch, rate)
    settle()
    return rate


ENQUEUE = f"SELECT count(outbox_enqueue('backlog', {BODY})) FROM generate_series(1, :per);\n"


def small_backlog():
    global small
    small = drain("a backlog of 200,000", 200000, 1000, ENQUEUE)


def transaction():
    messages = size("TRANSACTION", 1000000)
    enqueue = f"SELECT count(outbox_enqueue('transaction', {BODY})) FROM generate_series(1, {messages})"
    with connect() as connection:
        with Watch(f"{messages} messages rolled back"):
            connection.execute("BEGIN")
            connection.execute(enqueue)
            connection.execute("ROLLBACK")
            time.sleep(2)
        with Watch(f"{messages} in one transaction") as watch:
            connection.execute("BEGIN")
            connection.execute(enqueue)
            sent = Sent()
            connection.execute("COMMIT")
            start = time.monotonic()
            show_rate(watch, sent.rate(messages))
            watch.more += f" in {time.monotonic() - start:.1f} s"
    settle()


def backlog():
    messages = size("BACKLOG", 10000000)
    drain(f"a backlog of {messages}", messages, 1000, ENQUEUE)


def one_window():
    """All that was enqueued while dispatch was off is in one window."""
    messages = size("WINDOW", 10000000)
    sql("ALTER SYSTEM SET outbox.dispatch = off")
    sql("SELECT pg_reload_conf()")
    wait_until(lambda: status("dispatcher_state") == "off")
    with Watch("... while dispatch is off"):
        fill(messages, 1000, ENQUEUE)
    with Watch(f"{messages} in one window") as watch:
        sent = Sent()
        start = time.monotonic()
        sql("ALTER SYSTEM RESET outbox.dispatch")
        sql("SELECT pg_reload_conf()")
        show_rate(watch, sent.rate(messages))
        watch.more += f" in {time.monotonic() - start:.1f} s"
    settle()


def bodies():
    large = size("BODIES", 8)
    for count, mib in ((large * 25, 1), (large, 20), (large, 64)):
        with connect() as connection, Watch(f"{count} bodies of {mib} MiB") as watch:
            connection.execute("CREATE TEMP TABLE body AS SELECT decode(string_agg(md5(i::text), ''), 'hex') AS body "
                               "FROM generate_series(1, %s) i", (mib * 65536,))
            sent = Sent()
            start = time.monotonic()
            for _ in range(count):
                connection.execute("SELECT outbox_enqueue('bodies', body) FROM body")
            wait_until(lambda: sent.count() >= sent.before + count)
            watch.more = f"{count * mib / (time.monotonic() - start):.0f} MiB/s with the caller"
            wait_until(lambda: status("pending") < 3)
            time.sleep(2)
        settle()


def destinations():
    number = size("DESTINATIONS", 1000)
    messages = size("TRANSACTION", 1000000)
    sql("SELECT count(outbox_set_destination('d' || i, maxlen => 1000000)) FROM generate_series(1, %s) i", number)
    drain(f"{number} destinations", messages, 1000,
          f"SELECT count(outbox_enqueue('d' || i % {number}, {BODY})) FROM generate_series(1, :per) i;\n")
    with connect() as connection:
        views = [timed(connection, "SELECT * FROM outbox.destinations") for _ in range(20)]
    print(f"outbox.destinations with {number} of them: p50 {share(views, .5):.1f} ms, slowest {max(views):.1f} ms", flush=True)


def databases():
    number = size("DATABASES", 100)
    names = [f"large{n}" for n in range(number)]
    streams = redis.Redis(unix_socket_path=SOCKET)
    settle()
    start = time.monotonic()
    for name in names:
        sql(f"CREATE DATABASE {name}")
        sql("CREATE EXTENSION outbox", database=name)
        sql("SELECT outbox_enqueue(current_database(), 'first'::text)", database=name)
    made = time.monotonic()
    wait_until(lambda: streams.exists(*names) == number)
    print(f"{number} databases: made in {made - start:.1f} s, the last message is there {time.monotonic() - made:.2f} s after that", flush=True)

    subprocess.run(["pg_ctl", "-D", HOST, "-w", "-m", "fast", "stop"], stdout=subprocess.DEVNULL, check=True)
    streams.unlink(*names)
    os.rename(SOCKET, SOCKET + ".away")
    subprocess.run(["pg_ctl", "-D", HOST, "-l", HOST + "/postgres.log", "-w", "start"], stdout=subprocess.DEVNULL, check=True)
    up = time.monotonic()
    for name in names:
        sql("SELECT outbox_enqueue(current_database(), 'second'::text)", database=name)
    dispatchers = "SELECT array_agg(pid) FROM pg_stat_activity WHERE backend_type = 'outbox dispatcher'"
    wait_until(lambda: len(sql(dispatchers) or []) == number + 1)
    started = time.monotonic()
    bring_back()
    wait_until(lambda: len(streams.keys("large*")) == number)
    print(f"{number} databases: {started - up:.1f} s after a restart all dispatchers run, and all have sent "
          f"{time.monotonic() - started:.2f} s after Redis came back", flush=True)
    time.sleep(5)
    pids = sql(dispatchers)
    before = ticks(pids)
    with Watch(f"{number} databases, idle"):
        time.sleep(10)
    print(f"{number} databases, idle: {(ticks(pids) - before) * 10:.1f} % of a core, "
          f"{sum(map(private_memory, pids)):.0f} MB for all dispatchers", flush=True)
    for name in names:
        sql(f"DROP DATABASE {name}")


def delays(seconds):
    """From the return of COMMIT until a blocked XREAD has the message, in ms."""
    reader, last, found = redis.Redis(unix_socket_path=SOCKET), "$", []
    with connect() as connection:
        reader.xadd("delays", {"x": "x"})
        last = reader.xrevrange("delays", count=1)[0][0]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            connection.execute("SELECT outbox_enqueue('delays', 'x'::text)", prepare=True)
            start = time.monotonic()
            last = reader.xread({"delays": last}, block=60000)[0][1][-1][0]
            found.append((time.monotonic() - start) * 1000)
            time.sleep(0.01)
    return found


def show_delays(name, found):
    print(f"{name:32} delivered after p50 {share(found, .5):.2f} p99 {share(found, .99):.2f} slowest {max(found):.1f} ms", flush=True)


PROCESS = """SELECT count(*) FROM generate_series(1, :per) i
    WHERE outbox_begin(gen_random_uuid()) IS NULL OR outbox_commit() IS NULL;
"""


def records():
    """Those of a time when Redis is away are compacted when it is back."""
    show_delays("idle", delays(5))
    number = size("RECORDS", 5000000)
    send_away()
    fill(number, 1000, PROCESS)
    bring_back()
    wait_until(lambda: status("pending") == 0)
    segments = "SELECT coalesce(sum(keys), 0) FROM outbox.ring WHERE ring = 'history' AND state = 'quiet'"
    start, compacted, found = time.monotonic(), -1, []
    with Watch(f"{number} records are compacted"):
        while compacted < sql(segments):
            compacted = sql(segments)
            found += delays(10)
    show_delays(f"{number} records are compacted", found)
    print(f"compacted {compacted} in {time.monotonic() - start:.0f} s", flush=True)


CASES = (idle, small_backlog, transaction, backlog, one_window, bodies, destinations, records, databases)


def main():
    sql("CREATE EXTENSION outbox")
    wait_until(lambda: status("redis_state") == "up" and status("dispatcher_state") == "idle")
    wanted = os.environ.get("BENCH_CASES", "").split() or [case.__name__ for case in CASES]
    for case in CASES:
        if case.__name__ in wanted:
            case()


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")  # as it was before Python 3.14: observers share what is open
    main()
