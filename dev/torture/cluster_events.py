"""What happens to a Redis Cluster beside the death of nodes: masters change and are emptied, and slots move.

The outbox notices a loss by the fence, so a loss of the stream alone goes unnoticed. A
failover amid a move of a slot could cause one, since stream and fence may be on different
nodes then. So the nodes of both shards are left alone while a slot is on its way, with one
exception, which must not lose anything: the source, or the target, fails over, and its replica
has all that it had. (Were it both, nobody would know any more that the slot is torn.)
"""

import signal

import psycopg
import redis

from administration import Skipped, first_line
from events import Events

ASK_AGAIN = 3  # seconds after which a failover that had no effect is asked for once more


class ClusterEvents(Events):
    def __init__(self, consumer, *arguments):
        super().__init__(*arguments)
        self.consumer = consumer

    def kill_redis(self, seconds, node):
        self.redis.must_be_closed(self.redis.nodes[node])
        super().kill_redis(seconds, node)

    def freeze_redis(self, seconds, node):
        self.redis.must_be_closed(self.redis.nodes[node])
        super().freeze_redis(seconds, node)

    def fail_over(self, shard, how, lag):
        """The replica takes the place of its master; what came in the last seconds may not have reached it."""
        _, replica = self.redis.pair(shard)
        self.redis.must_be_closed(replica)
        if lag and how:
            replica.ignore_master()
            self.later(lag, lambda: self.take_over(replica, how))
        else:
            self.take_over(replica, how)
        self.later(lag + ASK_AGAIN, lambda: self.ask_again(replica, how))

    def take_over(self, replica, how):
        try:
            self.redis.fail_over(replica, how)
        except redis.RedisError as error:
            self.say(f"no failover: {error}")
        self.surely(replica.follow)

    def ask_again(self, replica, how):
        """A failover has no effect if it finds no majority in time, or if the replica takes votes of a moment ago for those of now."""
        try:
            self.redis.must_be_closed(replica)
            if not self.is_healing and not replica.is_master():
                self.take_over(replica, how)
        except redis.RedisError as error:
            self.say(f"no second try of a failover: {error}")

    def empty_node(self, shard, how):
        """A master loses all its keys, and so does its replica."""
        self.redis.must_be_whole()
        master, _ = self.redis.pair(shard)
        self.redis.must_be_closed(master)
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
        """A slot stays torn between two nodes for a while, and one of these may fail over meanwhile."""
        kept = {"all": lambda _: True, "ours": is_ours, "theirs": lambda name: not is_ours(name)}[keep]
        slot = self.slot_of(key)
        is_alone = not self.redis.moves
        self.move(slot, by, kept, seconds)
        self.say(f"  slot {slot} is torn")
        if fails_over and is_alone:
            self.take_over(self.redis.pair(self.redis.moves[slot][["source", "target"].index(fails_over)])[1], "FORCE")

    def tear_slot(self, tries=20, **arguments):
        """The same, for so long that all else happens beside it, and nobody repairs it; as soon as the cluster is whole."""
        try:
            self.abandon_move(**arguments)
        except redis.RedisError:
            if tries == 1:
                raise
            self.later(1, lambda: self.try_to_tear(tries - 1, arguments))

    def try_to_tear(self, tries, arguments):
        if self.is_healing:
            return
        try:
            self.tear_slot(tries, **arguments)
        except (Skipped, psycopg.Error, redis.RedisError) as reason:
            self.say(f"  no slot is torn: {first_line(reason)}")

    def slot_of(self, key):
        if isinstance(key, str) and key.endswith(":"):
            key += str(self.query("SELECT id FROM outbox.instance")[0][0])
        return self.redis.slot_of(key)

    def move(self, slot, by, keep=None, seconds=0.5):
        """What is left half-way is ended later."""
        if slot in self.redis.moves:
            raise Skipped("it is on its way")
        try:
            self.redis.move(slot, by, keep)
        finally:
            if slot in self.redis.moves:
                self.later(seconds, lambda: self.surely(lambda: self.end_move(slot)))

    def end_move(self, slot):
        if slot not in self.redis.moves:  # all was healed
            return
        try:
            self.redis.end_move(slot)
        except redis.RedisError as error:
            self.say(f"slot {slot} is still on its way: {error}")
            raise
        self.say(f"slot {slot} is whole")


def is_ours(key):
    return key.startswith(b"outbox:")
