"""An application over three databases: two are moved under load, one is lost and restored.

    shards.py FOLDER

Customers are spread over three shards, databases on two servers. All send to one Redis
Cluster, of which slots move and a master is lost; endpoint `shop` of each has the same
deduplication store, a Redis of its own. Two workers of examples/partitions write down what
arrives, in a database of their own. At the end, each order is in one shard, and its event was
handled once.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zlib

import psycopg
from cluster import Cluster

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../demo"))
from servers import Postgres, Redis  # noqa: E402

CUSTOMERS = [f"customer-{i}" for i in range(30)]
LOAD = 5  # seconds of load before and after each event
LIMIT = 120  # seconds until what must become true must be true


def shard_of(customer):
    return zlib.crc32(customer.encode()) % 3


def read(*path):
    with open(os.path.join(HERE, *path)) as file:
        return file.read()


def wait_until(what, condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"It took too long: {what}")
        time.sleep(0.1)


class Shop:
    """The application: knows which database a shard is, and hands messages to it."""

    def __init__(self):
        self.route = {}  # of each shard: what to connect to
        self.locks = [threading.Lock() for _ in range(3)]  # held by whoever works on a shard, or moves it
        self.connections = {}
        self.numbers = dict.fromkeys(CUSTOMERS, 0)
        self.processed = []  # what a broker would have sent: shard and message
        self.running = True

    def intake(self):
        """Handle new messages, one after the other in each shard."""
        while self.running:
            customer = random.choice(CUSTOMERS)
            shard = shard_of(customer)
            with self.locks[shard]:
                self.numbers[customer] += 1
                message = {"id": f"{customer}/{self.numbers[customer]}", "customer": customer, "number": self.numbers[customer]}
                self.deliver(shard, message)
                self.processed.append((shard, message))

    def deliver(self, shard, message):
        """Let a shard handle a message, again and again until it answers; return whether it was new."""
        while True:
            try:
                return self.handle(self.connect(shard), message)
            except psycopg.OperationalError:
                self.connections.pop(shard, None)
                time.sleep(0.2)

    def connect(self, shard):
        if shard not in self.connections:
            self.connections[shard] = psycopg.connect(self.route[shard], autocommit=True)
        return self.connections[shard]

    def handle(self, connection, message):
        with connection.transaction():
            (is_new,) = connection.execute("SELECT outbox_begin(%s, 'shop')", (message["id"],)).fetchone()
            if is_new:
                connection.execute("INSERT INTO orders VALUES (%(id)s, %(customer)s, %(number)s)", message)
                # The same event has the same id, also if the message must be handled again.
                connection.execute(
                    "SELECT outbox_enqueue('order-events', %s::jsonb, message_id => %s, key => %s)",
                    (json.dumps(message), "event/" + message["id"], message["customer"]),
                )
                connection.execute("SELECT outbox_commit()")
        return is_new

    def ask(self, shard, query, *values):
        with psycopg.connect(self.route[shard], autocommit=True) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def wait_until_sent(self, shard):
        wait_until(f"shard {shard} sends everything", lambda: self.ask(shard, "SELECT pending = 0 FROM outbox.status") == [(True,)])


class Worker(threading.Thread):
    """A worker of the group, which is started again when it ends."""

    def __init__(self, books, url, name):
        super().__init__(daemon=True)
        self.command = [sys.executable, "worker.py", books, url, "order-events", "billing", name, "3000"]
        self.running = True
        self.start()

    def run(self):
        while self.running:
            with subprocess.Popen(self.command, cwd=os.path.join(HERE, "../partitions"), stderr=subprocess.DEVNULL) as self.process:
                self.process.wait()

    def stop(self):
        self.running = False
        self.process.terminate()
        self.join()


def conninfo(server, database):
    return f"host={server.folder} dbname={database} user=postgres"


def create_database(server, name):
    server.run("psql", "-qXc", f"CREATE DATABASE {name}")


def create_shard(shop, shard, server, store):
    create_database(server, f"shop_{shard}")
    shop.route[shard] = conninfo(server, f"shop_{shard}")
    for statement in read("shard.sql").split(";\n"):
        if statement.strip():
            shop.ask(shard, statement)
    shop.ask(shard, "SELECT outbox_create_endpoint('shop', dedup_store => %s)", store)


def is_known(shop, at, message):
    """Have a message delivered to a shard, and take that back."""
    with psycopg.connect(shop.route[at], autocommit=True) as connection, connection.transaction(force_rollback=True):
        return not shop.handle(connection, message)


def deliver_to_others(shop):
    """A broker sends messages again, to another shard."""
    copies = random.sample(shop.processed, 50)
    for shard, message in copies:  # its id comes into the store a moment after its event is in Redis
        wait_until("an id comes into the store", lambda: is_known(shop, (shard + 1) % 3, message))
    print(f"{len(copies)} messages were delivered again to another shard: all were known.")


def move_by_dump(shop, shard, source, target):
    """Move a shard to another server; the others go on."""
    begin = time.monotonic()
    with shop.locks[shard]:
        shop.wait_until_sent(shard)
        shop.connections.pop(shard).close()
        # From here on the old one must not send, or both would.
        source.run("psql", "-qXc", f"ALTER DATABASE shop_{shard} SET outbox.dispatch = off")
        create_database(target, f"shop_{shard}")
        dump = os.path.join(target.folder, "dump")
        source.run("pg_dump", "-Fc", "-f", dump, f"shop_{shard}")
        target.run("pg_restore", "-d", f"shop_{shard}", dump)
        shop.route[shard] = conninfo(target, f"shop_{shard}")
    source.run("psql", "-qXc", f"DROP DATABASE shop_{shard} WITH (FORCE)")
    print(f"Shard {shard} was moved by a dump; its messages waited for {time.monotonic() - begin:.1f} s, those of others did not.")


OUTBOX_ONLY = ("--data-only", "--extension=outbox", "--schema=outbox")


def copy(source, target, database, *options, without=()):
    """Copy a part of a database to another server."""
    options += tuple(f"--exclude-table-data=outbox.{table}" for table in without)
    dump = os.path.join(target.folder, "dump")
    source.run("pg_dump", "-f", dump, *options, database)
    target.run("psql", "-qXv", "ON_ERROR_STOP=1", "-f", dump, database)


def move_by_replication(shop, shard, source, target):
    """Move a shard to another server while it works; its messages wait for what is new since then only."""
    database = f"shop_{shard}"
    create_database(target, database)
    copy(source, target, database, "--schema-only")
    shop.ask(shard, "CREATE PUBLICATION move FOR TABLE orders")
    old, new = (psycopg.connect(conninfo(server, database), autocommit=True) for server in (source, target))
    new.execute(f"CREATE SUBSCRIPTION move CONNECTION '{conninfo(source, database)}' PUBLICATION move")
    wait_until("the orders are copied", lambda: is_true(new, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"))
    # While this transaction is open no record leaves these tables: the second copy has those that the first one lacks.
    with old.transaction():
        old.execute(f"LOCK TABLE {', '.join(f'outbox.record_{n}' for n in range(12))} IN ACCESS SHARE MODE")
        copy(source, target, database, *OUTBOX_ONLY, without=("log_*", "forgotten"))
        time.sleep(LOAD)
        begin = time.monotonic()
        with shop.locks[shard]:
            shop.wait_until_sent(shard)
            shop.connections.pop(shard).close()
            source.run("psql", "-qXc", f"ALTER DATABASE {database} SET outbox.dispatch = off")
            wait_until("the old one sends no more", lambda: shop.ask(shard, "SELECT dispatcher_state FROM outbox.status") == [("off",)])
            ((lsn,),) = shop.ask(shard, "SELECT pg_current_wal_lsn()")
            has_all = f"SELECT confirmed_flush_lsn >= '{lsn}' FROM pg_replication_slots WHERE slot_name = 'move'"
            wait_until("the new one has all orders", lambda: is_true(old, has_all))
            new.execute("DROP SUBSCRIPTION move")
            copy(source, target, database, *OUTBOX_ONLY, without=("history_*", "endpoint", "destination"))
            shop.route[shard] = conninfo(target, database)
    waited = time.monotonic() - begin
    old.close()
    new.close()
    source.run("psql", "-qXc", f"DROP DATABASE {database} WITH (FORCE)")
    print(f"Shard {shard} was moved by logical replication; its messages waited for {waited:.1f} s.")


def is_true(connection, query):
    return connection.execute(query).fetchone() == (True,)


def deliver_again(shop, shard):
    """A broker sends messages again, to a shard that has a new server and at this moment no store."""
    copies = [message for at, message in shop.processed if at == shard]
    shop.ask(shard, "SELECT outbox_alter_endpoint('shop', reset => '{dedup_store}')")
    if not all(is_known(shop, shard, message) for message in random.sample(copies, 50)):
        sys.exit(f"Shard {shard} does not know a message.")
    print(f"50 of {len(copies)} messages were delivered again to shard {shard}: all were known, without the store as well.")


def lose_and_restore(shop, shard, server, folder):
    """Lose the server of a shard: what was committed after the last WAL in the archive is gone."""
    backup = os.path.join(folder, "backup")
    server.run("pg_basebackup", "-D", backup, "-c", "fast")
    time.sleep(LOAD)
    server.run("psql", "-qXc", "SELECT pg_switch_wal()")
    time.sleep(LOAD)
    with shop.locks[shard], shop.locks[1]:
        server.process.kill()
        server.process.wait()
        shutil.rmtree(server.folder)
        shutil.copytree(backup, server.folder)
        os.chmod(server.folder, 0o700)
        with open(os.path.join(server.folder, "postgresql.conf"), "a") as conf:
            # We know that the old server is gone.
            conf.write(f"restore_command = 'cp {folder}/archive/%f %p'\noutbox.takeover_delay = '0s'\n")
        open(os.path.join(server.folder, "recovery.signal"), "w").close()
        time.sleep(1)
        server.launch()
        wait_until("the server is restored", lambda: is_primary(server))
        for lost in (shard, 1):
            repair(shop, lost)


def is_primary(server):
    if not server.answers():
        return False
    with psycopg.connect(server.conninfo()) as connection:
        return connection.execute("SELECT NOT pg_is_in_recovery()").fetchone()[0]


def repair(shop, shard):
    """Find the messages whose orders are gone, and have them delivered again."""
    shop.connections.pop(shard, None)
    kept = {order for (order,) in shop.ask(shard, "SELECT id FROM orders")}
    lost = [message for at, message in shop.processed if at == shard and message["id"] not in kept]
    for message in lost:
        # The store still knows those whose events were sent.
        shop.ask(shard, "SELECT outbox_forget(%s, 'shop')", message["id"])
        assert shop.deliver(shard, message), message
    print(f"Shard {shard} was restored from a backup: {len(lost)} orders of {len(lost) + len(kept)} were gone, and were delivered again.")


def compare(shop, books):
    """Compare what brokers sent, orders in shards, and events that were handled."""
    sent = {message["id"]: shard for shard, message in shop.processed}
    for shard in range(3):
        shop.wait_until_sent(shard)
        orders = {order for (order,) in shop.ask(shard, "SELECT id FROM orders")}
        if orders != {message for message, at in sent.items() if at == shard}:
            sys.exit(f"The orders of shard {shard} are not those that were sent.")
    with psycopg.connect(books, autocommit=True) as connection:
        wait_until("all events are handled", lambda: connection.execute("SELECT count(DISTINCT body::json ->> 'id') FROM handled").fetchone()[0] == len(sent))
        handled = connection.execute("SELECT key, (body::json ->> 'number')::integer FROM handled ORDER BY place").fetchall()
    if len(handled) != len(sent):
        sys.exit(f"{len(handled)} events were handled, of {len(sent)}.")
    for customer in CUSTOMERS:
        numbers = [number for key, number in handled if key == customer]
        if shard_of(customer) == 0 and numbers != sorted(numbers):
            sys.exit(f"Events of {customer} were handled out of order.")
    print(f"{len(sent)} orders, each in its shard once; {len(handled)} events handled, each once, and those of shard 0 in the order of each customer.")


def main(folder):
    os.mkdir(folder)
    os.mkdir(os.path.join(folder, "archive"))
    cluster, store = Cluster(os.path.join(folder, "redis")), Redis(os.path.join(folder, "store"))
    settings = {
        "shared_preload_libraries": "outbox", "outbox.redis_url": cluster.url, "wal_level": "logical", "max_worker_processes": 20,
        "archive_mode": "on", "archive_command": f"cp %p {folder}/archive/%f",
    }  # fmt: skip
    one, two = (Postgres(os.path.join(folder, name), settings) for name in ("one", "two"))
    servers = cluster, store, one, two
    workers = []
    try:
        for server in servers:
            server.start()
        shop = Shop()
        for shard, server in enumerate((one, one, two)):
            create_shard(shop, shard, server, store.url)
        create_database(one, "books")
        books = conninfo(one, "books")
        one.run("psql", "-qXd", "books", "-c", "CREATE EXTENSION outbox", "-f", os.path.join(HERE, "../partitions/schema.sql"))
        workers = [Worker(books, cluster.url, name) for name in ("first", "second")]
        intake = [threading.Thread(target=shop.intake, daemon=True) for _ in range(4)]
        for thread in intake:
            thread.start()
        time.sleep(LOAD)
        deliver_to_others(shop)
        move_by_dump(shop, 1, one, two)
        cluster.move_slots(1000)
        print("1000 slots of the cluster were moved.")
        cluster.lose_master()
        print("A master of the cluster was lost.")
        lose_and_restore(shop, 2, two, folder)
        move_by_replication(shop, 0, one, two)
        deliver_again(shop, 0)
        time.sleep(LOAD)
        shop.running = False
        for thread in intake:
            thread.join()
        compare(shop, books)
    finally:
        for worker in workers:
            worker.stop()
        for server in reversed(servers):
            server.stop()


main(*sys.argv[1:])
