"""A private Redis Cluster of three masters, each with a replica."""

import os
import random
import socket
import subprocess
import sys
import time

import redis

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../demo"))
from servers import START_TIMEOUT, Redis, ServerFailed  # noqa: E402

BUS = 10000  # the nodes talk to each other on a port that is so much greater
EPHEMERAL = 32768  # connections get ports from that one on


def free_port():
    while True:
        port = random.randrange(10000, EPHEMERAL - BUS)
        try:
            for number in port, port + BUS:
                with socket.socket() as server:
                    server.bind(("127.0.0.1", number))
            return port
        except OSError:
            pass


class Node(Redis):
    """A Redis that answers on a port as well."""

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    def command(self):
        return (
            *super().command(), "--port", str(self.port), "--bind", "127.0.0.1", "--cluster-enabled", "yes",
            "--cluster-node-timeout", "3000", "--repl-diskless-sync-delay", "0",
        )  # fmt: skip

    def ask(self, *command):
        return redis.Redis(unix_socket_path=self.socket, decode_responses=True).execute_command(*command)

    def is_master_of_slots(self):
        return self.ask("ROLE")[0] in ("master", b"master") and any(master[1] == self.port for _, _, master, *_ in self.ask("CLUSTER SLOTS"))


class Cluster:
    def __init__(self, folder):
        os.mkdir(folder)
        self.nodes = [Node(os.path.join(folder, str(n))) for n in range(6)]
        self.url = "redis+cluster://" + ",".join(node.address for node in self.nodes)

    def start(self):
        for node in self.nodes:
            node.start()
        self.run("create", *(node.address for node in self.nodes), "--cluster-replicas", "1", "--cluster-yes")
        self.wait_until(self.is_whole)

    def stop(self):
        for node in self.nodes:
            node.stop()

    def run(self, *command):
        """Run redis-cli."""
        done = subprocess.run(("redis-cli", "--cluster", *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise ServerFailed(f"redis-cli --cluster {command[0]} failed", done.stdout)

    def is_whole(self):
        """Check whether all nodes are there, and each replica has what its master has."""
        return all(
            "cluster_state:ok" in node.ask("CLUSTER", "INFO") and node.ask("INFO", "replication").get("master_link_status", "up") == "up"
            for node in self.nodes
        )  # fmt: skip

    def masters(self):
        return [node for node in self.nodes if node.answers() and node.is_master_of_slots()]

    def move_slots(self, slots):
        """Move so many slots from one master to another."""
        source, target = random.sample(self.masters(), 2)
        ids = [node.ask("CLUSTER", "MYID") for node in (source, target)]
        self.run("reshard", source.address, "--cluster-from", ids[0], "--cluster-to", ids[1], "--cluster-slots", str(slots), "--cluster-yes")

    def lose_master(self):
        """Kill a master; its replica takes its place, and later it comes back as a replica."""
        master = random.choice(self.masters())
        master.process.kill()
        master.process.wait()
        self.wait_until(lambda: len(self.masters()) == 3)
        master.start()
        self.wait_until(self.is_whole)

    def wait_until(self, condition):
        deadline = time.monotonic() + START_TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise ServerFailed("the cluster does not become whole", "\n".join(node.last_words() for node in self.nodes))
            time.sleep(0.1)
