"""What happens to a Redis Cluster beside the death of nodes: masters change and are emptied, and slots move.

The outbox notices a loss by the fence, so a loss of the stream alone goes unnoticed. A
failover amid a move of a slot could cause one, since stream and fence may be on different
nodes then. So nodes are left alone while a slot is on its way, with one exception, which
must not lose anything: the source fails over, and its replica has all that it had.
"""

import signal

import redis

from administration import Skipped
from events import Events


class ClusterEvents(Events):
    def __init__(self, consumer, *arguments):
        super().__init__(*arguments)
        self.consumer = consumer

    def kill_redis(self, seconds, node):
        self.redis.must_not_move()
        super().kill_redis(seconds, node)

    def freeze_redis(self, seconds, node):
        self.redis.must_not_move()
        super().freeze_redis(seconds, node)

    def fail_over(self, shard, how, lag):
        """The replica takes the place of its master; what came in the last seconds may not have reached it."""
        self.redis.must_not_move()
        _, replica = self.redis.pair(shard)
        if lag and how:
            replica.ignore_master()
            self.later(lag, lambda: self.take_over(replica, how))
        else:
            self.take_over(replica, how)

    def take_over(self, replica, how):
        try:
            replica.call("CLUSTER", "FAILOVER", *([how] if how else []))
        except redis.RedisError as error:
            self.say(f"no failover: {error}")
        self.surely(replica.follow)

    def empty_node(self, shard, how):
        """A master loses all its keys, and so does its replica."""
        self.redis.must_be_whole()
        self.redis.must_not_move()
        master, _ = self.redis.pair(shard)
        self.consumer.look()  # consumers have read what is not sent again
        if how == "FLUSHALL":
            master.call("FLUSHALL", timeout=10)
        else:
            master.end(signal.SIGKILL)
            master.lose_keys()
            master.start()

    def move_slot(self, key, by):
        self.move(self.slot_of(key), by)

    def reshard(self, keys, by):
        """Several slots, one after the other."""
        for key in keys:
            self.move(self.slot_of(key), by)

    def abandon_move(self, key, by, keep, seconds, fails_over):
        """A slot stays torn between two nodes for a while, and its source may fail over meanwhile."""
        kept = {"all": lambda _: True, "ours": is_ours, "theirs": lambda name: not is_ours(name)}[keep]
        slot = self.slot_of(key)
        self.move(slot, by, kept, seconds)
        if fails_over:
            self.take_over(self.redis.pair(self.redis.shard_of(self.redis.owner(slot)))[1], "FORCE")

    def slot_of(self, key):
        if isinstance(key, str) and key.endswith(":"):
            key += str(self.query("SELECT id FROM outbox.instance")[0][0])
        return self.redis.slot_of(key)

    def move(self, slot, by, keep=None, seconds=0.5):
        """What is left half-way is ended later."""
        if self.redis.moves:
            raise Skipped("a slot is on its way")
        try:
            self.redis.move(slot, by, keep)
        finally:
            if self.redis.moves:
                self.later(seconds, lambda: self.surely(self.end_moves))

    def end_moves(self):
        try:
            self.redis.end_moves()
        except redis.RedisError as error:
            self.say(f"the slot is still on its way: {error}")
            raise
        self.say("no slot is on its way")


def is_ours(key):
    return key.startswith(b"outbox:")
