"""A private PostgreSQL and a private Redis that are killed often, and started again. The
nodes of a cluster are in cluster.py."""

import glob
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time

import psycopg
import redis

from proxy import Proxy

PATIENCE = 180  # seconds until a server must answer


class ServerFailed(Exception):
    """A server does not come up; says why."""


class Server:
    """A child process in a folder of its own that answers on a unix socket there."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder + ".log"
        self.process = None
        self.environment = {}
        os.mkdir(folder, 0o700)

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Start it, unless it runs, and wait until it answers."""
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} does not start:\n{self.last_words()}")
            # The first tries may come too early: children of the dead server still hold its memory.
            if not self.is_running:
                self.launch()
            time.sleep(0.1)

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.environment},
            )  # fmt: skip

    def end(self, number):
        """Send a signal that ends it, and wait until it has ended."""
        if not self.is_running:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerFailed(f"{self.name} did not end within {PATIENCE} s of signal {number}") from None

    def last_words(self):
        """The end of its log."""
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-30:])


class Postgres(Server):
    name = "PostgreSQL"
    IMMEDIATE, FAST = signal.SIGQUIT, signal.SIGINT  # ways to stop

    def create(self, settings):
        """Make the cluster, with these settings."""
        command = ["initdb", "-D", self.folder, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise ServerFailed(f"initdb failed:\n{done.stdout}")
        with open(os.path.join(self.folder, "postgresql.conf"), "a") as conf:
            conf.write(f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\n")
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.make_clock()

    def make_clock(self):
        """Compile a clock that can be wrong, for this server alone; see clock.c."""
        library, self._clock_file = self.folder + ".clock.so", self.folder + ".clock"
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock.c")
        self.clock = self.latest = 0
        self.set_clock(0)
        try:
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", library], check=True)
        except (OSError, subprocess.CalledProcessError):
            return
        self.environment = {"LD_PRELOAD": library, "TORTURE_CLOCK": self._clock_file}

    @property
    def has_clock(self):
        return bool(self.environment)

    def set_clock(self, offset):
        """Set its clock ahead by so many seconds. The file is written in place, for it is mapped."""
        self.clock, self.latest = offset, max(self.latest, offset)
        with open(self._clock_file, "r+b" if os.path.exists(self._clock_file) else "wb") as file:
            file.write(struct.pack("d", offset))

    def command(self):
        return "postgres", "-D", self.folder

    def conninfo(self, user="postgres", database="postgres"):
        return f"host={self.folder} port=5432 dbname={database} user={user} connect_timeout=10"

    def connect(self):
        return psycopg.connect(self.conninfo(), autocommit=True)

    def answers(self):
        try:
            self.connect().close()
            return True
        except psycopg.OperationalError:
            return False


class Redis(Server):
    """A Redis that answers only when its data are on disk, so that a kill loses nothing that it acknowledged."""

    name = "Redis"
    is_cluster = False

    def __init__(self, folder, tls):
        super().__init__(folder)
        self.socket = os.path.join(folder, "redis.sock")
        self.certificate, self.key = (tls and make_certificate(folder)) or (None, None)
        self.tls_port = free_port() if tls else None
        self.is_frozen = False
        self._sizes = []  # (time, bytes written)

    # What a cluster has, too

    @property
    def nodes(self):
        return [self]

    def make_proxies(self):
        """Make a network in front of each node. To be called before it starts."""
        self.proxies = [Proxy(self.socket, self.tls_port)]
        return self.proxies

    def url(self, database=""):
        return f"{'rediss' if self.tls_port else 'redis'}://127.0.0.1:{self.proxies[0].port}{database}"

    def server_of(self, key, timeout=30):
        """The client of the server that has this key."""
        return self.client(timeout)

    def relieve(self):
        """Undo what keeps it from accepting messages."""
        client = self.client(1)
        client.config_set("maxmemory", 0)
        client.config_set("min-replicas-to-write", 0)
        client.config_set("proto-max-bulk-len", "512mb")
        if not self.is_cluster:
            client.execute_command("REPLICAOF", "NO", "ONE")
        client.execute_command("ACL", "SETUSER", "default", "allkeys")

    def must_stay(self, key):
        """Nothing moves."""

    def must_be_closed(self, node):
        """Nothing moves."""

    def recover(self):
        """Undo all that was done to it."""
        self.thaw()
        self.start()

    def command(self):
        return (
            "redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", *self.tls_options(),
        )  # fmt: skip

    def tls_options(self):
        if not self.tls_port:
            return ()
        return (
            "--tls-port", str(self.tls_port), "--tls-cert-file", self.certificate, "--tls-key-file", self.key,
            "--tls-ca-cert-file", self.certificate, "--tls-auth-clients", "no",
        )  # fmt: skip

    def client(self, timeout=30):
        return redis.Redis(unix_socket_path=self.socket, socket_timeout=timeout)

    def answers(self):
        try:
            return self.client(1).ping()
        except redis.RedisError:
            return False

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self):
        if self.is_running:
            os.kill(self.process.pid, signal.SIGCONT)
        self.is_frozen = False

    @property
    def writes(self):
        """The file with all that was ever written: a prefix of it is an earlier state."""
        return os.path.join(self.folder, "appendonlydir", "appendonly.aof.1.incr.aof")

    def note_size(self):
        """Remember how much it has written by now."""
        if self.is_running and os.path.exists(self.writes):
            self._sizes.append((time.monotonic(), os.path.getsize(self.writes)))

    def size_before(self, seconds):
        """How much it had written so many seconds ago; None if that was before it began."""
        past = [size for at, size in self._sizes if at <= time.monotonic() - seconds]
        return past[-1] if past else None

    def forget(self, size):
        """Keep only so many bytes of what was written; while it does not run."""
        shutil.copyfile(self.writes, os.path.join(self.folder, f"writes.{time.monotonic():.3f}"))
        os.truncate(self.writes, size)
        self._sizes.clear()

    def all_writes(self):
        """The files with all that was ever written, also what was forgotten."""
        return [*glob.glob(os.path.join(self.folder, "writes.*")), self.writes]


def make_certificate(folder):
    """Make a certificate that is its own authority; return the paths of it and its key."""
    certificate, key = os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=torture",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return certificate, key


def free_port():
    """A port that is free, below those that connections get."""
    while True:
        port = random.SystemRandom().randrange(20000, 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
