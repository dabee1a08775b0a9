"""A private PostgreSQL and a private Redis, kept alive as a service manager would."""

import os
import signal
import subprocess
import time

import psycopg
import redis

from workers import ending

START_TIMEOUT = 60  # seconds until a server must answer
RETRY = 0.2  # seconds between two tries to start it again


class ServerFailed(Exception):
    """A server does not come up; with its last words."""

    def __init__(self, what, words):
        super().__init__(what)
        self.words = words


class Server:
    """A child process in a folder of its own that answers on a unix socket there."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder + ".log"
        self.process = None
        self.died_at = None  # until it answers again
        os.mkdir(folder, 0o700)

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        """Start it and wait until it answers."""
        self.launch()
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise ServerFailed(f"{self.name} does not start", self.last_words())
            time.sleep(0.05)

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.launched_at = time.monotonic()

    def keep_alive(self):
        """Start it again if it died; return what it died of, once."""
        now = time.monotonic()
        status = self.process.poll()
        if status is None:
            if self.died_at and self.answers():
                self.died_at = None
            return None
        if self.died_at is None:
            self.died_at = now
            self.launch()
            return ending(status)
        # The first tries may come too early: children of the dead server still hold its memory.
        if now > self.died_at + START_TIMEOUT:
            raise ServerFailed(f"{self.name} does not start again", self.last_words())
        if now > self.launched_at + RETRY:
            self.launch()
        return None

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def last_words(self):
        """The end of its log; nothing if it has none yet."""
        if not os.path.exists(self.log):
            return ""
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-20:])


class Postgres(Server):
    """The PostgreSQL of the path, with default settings except these."""

    name = "postmaster"
    stop_signal = signal.SIGINT  # fast shutdown

    def __init__(self, folder, settings):
        super().__init__(folder)
        self.settings = {"listen_addresses": "", "unix_socket_directories": folder, **settings}

    def start(self):
        initdb = ["initdb", "-D", self.folder, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8"]
        self.run(*initdb)
        with open(os.path.join(self.folder, "postgresql.conf"), "a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
        super().start()

    def command(self):
        return "postgres", "-D", self.folder

    def answers(self):
        try:
            psycopg.connect(self.conninfo()).close()
            return True
        except psycopg.OperationalError:
            return False

    def conninfo(self, user="postgres"):
        return f"host={self.folder} port=5432 dbname=postgres user={user}"

    def run(self, *command):
        """Run a program of PostgreSQL's."""
        where = {"PGHOST": self.folder, "PGPORT": "5432", "PGUSER": "postgres", "PGDATABASE": "postgres"}
        done = subprocess.run(
            command, env={**os.environ, **where}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        if done.returncode:
            raise ServerFailed(f"{command[0]} failed", done.stdout)


class Redis(Server):
    """A Redis that answers only when its data are on disk, so that a kill loses nothing that it acknowledged."""

    name = "redis-server"
    stop_signal = signal.SIGTERM

    def __init__(self, folder):
        super().__init__(folder)
        self.socket = os.path.join(folder, "redis.sock")
        self.url = f"unix://{self.socket}"

    def command(self):
        return (
            "redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder,
            "--save", "", "--appendonly", "yes", "--appendfsync", "always",
        )  # fmt: skip

    def answers(self):
        try:
            return redis.Redis.from_url(self.url).ping()
        except redis.RedisError:
            return False
