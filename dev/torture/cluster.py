"""A private Redis Cluster of three masters, each with a replica, whose nodes fail and whose slots move.

Nodes n and n + 3 are a shard: one is the master, the other one its replica. Clients, and
replicas of their master, reach a node through a proxy in front of it, whose port is the
one that the nodes name. This program itself uses their unix sockets.
"""

import binascii
import glob
import os
import shutil
import time

import redis

from proxy import Proxy
from servers import PATIENCE, Redis, ServerFailed, free_port, make_certificate

SHARDS = 3
SLOTS = 16384
NODE_TIMEOUT = 2  # seconds after which a master that does not answer is replaced
QUICK = 2  # seconds that a node has to answer this program
FAILOVER = 6  # seconds after which a failover that was asked for does not take place any more: Redis gives it up after 5


class NotNow(redis.RedisError):
    """The cluster is not in a state in which this can be done; says why."""


class Node(Redis):
    """A node, which keeps what it acknowledged when it is killed; its replica may lack the newest writes."""

    is_cluster = True

    def __init__(self, folder, certificate, key):
        """With a certificate it speaks nothing but TLS, with clients, its master and the other nodes."""
        super().__init__(folder, None)
        self.port, self.bus_port = free_port(), free_port()
        self.certificate, self.key = certificate, key
        self.tls_port = self.port if certificate else None
        self._id = None

    def make_proxy(self):
        self.proxy = Proxy(None, self.port)
        return self.proxy

    def command(self):
        return (
            "redis-server", "--port", "0" if self.tls_port else str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket,
            "--dir", self.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
            "--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0",
            "--cluster-enabled", "yes", "--cluster-port", str(self.bus_port), "--cluster-node-timeout", str(1000 * NODE_TIMEOUT),
            "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
            "--cluster-allow-replica-migration", "no", "--cluster-announce-ip", "127.0.0.1",
            *(("--cluster-announce-tls-port", str(self.proxy.port), "--tls-cluster", "yes", "--tls-replication", "yes") if self.tls_port
              else ("--cluster-announce-port", str(self.proxy.port))),
            "--cluster-announce-bus-port", str(self.bus_port), *self.tls_options(),
        )  # fmt: skip

    @property
    def is_up(self):
        return self.is_running and not self.is_frozen

    def call(self, *words, timeout=QUICK):
        if not self.is_up:
            raise NotNow("a node is down")
        return self.client(timeout).execute_command(*words)

    @property
    def id(self):
        self._id = self._id or self.call("CLUSTER", "MYID").decode()
        return self._id

    def is_master(self):
        return self.call("ROLE")[0] == b"master"

    def lines(self):
        """What it knows of all nodes, as CLUSTER NODES has it: a list of words for each."""
        return [line.split() for line in self.call("CLUSTER", "NODES").decode().splitlines()]

    def myself(self):
        """(configuration epoch, slots) as it takes itself to be."""
        words = next(words for words in self.lines() if "myself" in words[2])
        slots = set()
        for word in words[8:]:
            if not word.startswith("["):
                first, _, last = word.partition("-")
                slots.update(range(int(first), int(last or first) + 1))
        return int(words[6]), slots

    def gives_away(self, slot):
        return f"[{slot}->-" in self.call("CLUSTER", "NODES").decode()

    def wait_for_replica(self):
        """Wait until its replica has what it has now, but not for long."""
        end = self.call("INFO", "replication")["master_repl_offset"]
        deadline = time.monotonic() + QUICK
        while self.call("INFO", "replication").get("slave0", {}).get("offset", 0) < end:
            if time.monotonic() > deadline:
                raise NotNow("the replica does not answer")
            time.sleep(0.01)

    def ignore_master(self):
        """From now on it gets nothing."""
        self.call("CONFIG", "SET", "masterauth", "wrong")
        self.call("CONFIG", "SET", "masteruser", "nobody")
        self.call("CLIENT", "KILL", "TYPE", "master")

    def follow(self):
        """It gets again what its master has."""
        self.call("CONFIG", "SET", "masteruser", "")
        self.call("CONFIG", "SET", "masterauth", "")

    def keys_of(self, slot):
        return self.call("CLUSTER", "GETKEYSINSLOT", slot, 1000)

    def lose_keys(self):
        """Remove what it has on disk, but not who it is; while it does not run."""
        shutil.rmtree(os.path.dirname(self.writes))
        for path in glob.glob(os.path.join(self.folder, "*.rdb")):
            os.unlink(path)


class Cluster:
    """Has what servers.Redis has, as far as the torture asks for it."""

    name = "Redis Cluster"
    is_cluster = True

    def __init__(self, folder, tls):
        os.mkdir(folder, 0o700)
        self.certificate, key = make_certificate(folder) if tls else (None, None)
        self.nodes = [Node(f"{folder}{n}", self.certificate, key) for n in range(2 * SHARDS)]
        self.tls_port = self.nodes[0].tls_port
        self.moves = {}  # slot on its way → (the shard it leaves, the shard it goes to)
        self.failovers = {}  # replica that was asked to take over → until when it may
        self._is_made = False

    def make_proxies(self):
        return [node.make_proxy() for node in self.nodes]

    def url(self, database=""):
        """There are no databases in a cluster."""
        return f"{'rediss' if self.tls_port else 'redis'}+cluster://" + ",".join(f"127.0.0.1:{node.proxy.port}" for node in self.nodes)

    # The whole

    def start(self):
        for node in self.nodes:
            node.start()
        if not self._is_made:
            self.make()
            self._is_made = True

    def make(self):
        first = [SLOTS * shard // SHARDS for shard in range(SHARDS + 1)]
        for number, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < SHARDS:
                node.call("CLUSTER", "ADDSLOTSRANGE", first[number], first[number + 1] - 1)
            if number > 0:
                node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus_port)
        self.wait_for(self.all_have_met)
        for number in range(SHARDS, 2 * SHARDS):
            self.nodes[number].call("CLUSTER", "REPLICATE", self.nodes[number - SHARDS].id)
        self.wait_for(self.is_whole)

    def all_have_met(self):
        return all(len(lines) == len(self.nodes) and all(words[7] == "connected" and "handshake" not in words[2] for words in lines)
                   for lines in (node.lines() for node in self.nodes))  # fmt: skip

    def is_whole(self):
        """Check whether all nodes are up and know that, and each shard has a master and a replica that follows it, and keeps both."""
        if not all(node.is_up for node in self.nodes) or not self.all_have_met():
            return False
        if any(time.monotonic() < until and not replica.is_master() for replica, until in self.failovers.items()):
            return False
        if any("fail" in words[2] for node in self.nodes for words in node.lines()):
            return False
        if any(b"cluster_state:ok" not in node.call("CLUSTER", "INFO") for node in self.nodes):
            return False
        roles = [node.call("ROLE") for node in self.nodes]
        follows = [role[0] == b"slave" and role[3] == b"connected" for role in roles]
        return all({roles[n][0], roles[n + SHARDS][0]} == {b"master", b"slave"} and (follows[n] or follows[n + SHARDS])
                   for n in range(SHARDS))  # fmt: skip

    def must_be_whole(self):
        if not self.is_whole():
            raise NotNow("the cluster is not whole")

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        reason = None
        while True:
            try:
                if condition():
                    return
            except redis.RedisError as error:
                reason = error
            if time.monotonic() > deadline:
                raise ServerFailed(f"not so in the cluster: {condition.__name__} ({reason})")
            time.sleep(0.1)

    def recover(self):
        """Undo all that was done to it; what was on its way arrives."""
        self.thaw()
        self.start()
        for node in self.nodes:
            node.relieve()
            node.follow()
        self.wait_for(self.is_whole)
        self.wait_for(self.end_moves)
        self.wait_for(self.is_whole)

    def fail_over(self, replica, how):
        """Ask it to take over, which it does soon, or not at all."""
        try:
            replica.call("CLUSTER", "FAILOVER", *([how] if how else []))
        finally:  # it may have been asked where there is no answer
            self.failovers[replica] = time.monotonic() + FAILOVER

    def thaw(self):
        for node in self.nodes:
            node.thaw()

    def end(self, number):
        for node in self.nodes:
            node.end(number)

    def note_size(self):
        pass

    # Who has what

    def slot_of(self, key):
        """The slot of a key; a number is one already."""
        if isinstance(key, int):
            return key
        key = key if isinstance(key, bytes) else key.encode()
        tag, closed, _ = key.partition(b"{")[2].partition(b"}")
        return binascii.crc_hqx(tag if closed and tag else key, 0) % SLOTS

    def masters(self):
        return [node for node in self.nodes if node.is_up and node.is_master()]

    def owner(self, slot):
        """The master of a slot; of two that take themselves for it, the later one."""
        claims = [(epoch, node) for node in self.masters() for epoch, slots in [node.myself()] if slot in slots]
        if not claims:
            raise NotNow(f"slot {slot} has no master")
        return max(claims, key=lambda claim: claim[0])[1]

    def pair(self, shard):
        """Master and replica of a shard."""
        nodes = self.nodes[shard], self.nodes[shard + SHARDS]
        masters = [node for node in nodes if node.is_master()]
        if len(masters) != 1:
            raise NotNow("it is not clear who the master is")
        return masters[0], nodes[0] if masters[0] is nodes[1] else nodes[1]

    def shard_of(self, node):
        return self.nodes.index(node) % SHARDS

    def server_of(self, key, timeout=30):
        """The client of the master that has this key."""
        return self.owner(self.slot_of(key)).client(timeout)

    def strays(self):
        """Keys that are on a master that does not serve them."""
        for node in self.masters():
            slots = node.myself()[1]
            yield from (key for key in node.call("KEYS", "*", timeout=30) if self.slot_of(key) not in slots)

    # Slots that move

    def must_stay(self, key):
        """A key whose slot is on its way is left alone."""
        if self.slot_of(key) in self.moves:
            raise NotNow("its slot is on its way")

    def must_be_closed(self, node):
        """While slots are on their way, the nodes of both shards are left alone: what only one of two keys survives is lost for good."""
        if any(self.shard_of(node) in shards for shards in self.moves.values()):
            raise NotNow("a slot of it is on its way")

    def move(self, slot, by, keep=None):
        """Move a slot, by so many shards; if `keep` is given, only the keys for which it is false, and it stays torn."""
        self.must_be_whole()
        self.must_stay(slot)
        source = self.owner(slot)
        target = self.pair((self.shard_of(source) + by) % SHARDS)[0]
        self.moves[slot] = self.shard_of(source), self.shard_of(target)
        self.open(slot, source, target)
        self.carry(slot, source, target, keep)
        if not keep:
            self.close(slot, source, target)

    def open(self, slot, source, target):
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def carry(self, slot, source, target, keep=None):
        """Take keys along; replicas have them before anything else happens, so that no failover loses a part of them."""
        keys = [key for key in source.keys_of(slot) if not (keep and keep(key))]
        if keys:
            source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys, timeout=10)
        for node in (target, source):
            node.wait_for_replica()

    def close(self, slot, source, target):
        for node in [target, source, *(node for node in self.masters() if node not in (target, source))]:
            node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        del self.moves[slot]

    def end_moves(self):
        """End all that was left half-way; returns True."""
        for slot in list(self.moves):
            self.end_move(slot)
        return True

    def end_move(self, slot):
        self.must_be_whole()
        source, target = self.owner(slot), self.pair(self.moves[slot][1])[0]
        if source is target:
            self.close(slot, source, target)
        elif source.gives_away(slot):
            self.open(slot, source, target)  # a target that has failed over has forgotten it
            self.carry(slot, source, target)
            self.close(slot, source, target)
        else:
            self.take_back(slot, source, target)

    def take_back(self, slot, source, target):
        """The source has failed over, and forgotten that it gives the slot away; so `redis-cli --cluster fix` gives it back."""
        target.call("CLUSTER", "SETSLOT", slot, "NODE", source.id)
        self.carry(slot, target, source)
        target.call("CLUSTER", "SETSLOT", slot, "STABLE")
        del self.moves[slot]
