"""What happens, and when: derived from the seed alone."""

import random
from dataclasses import dataclass, field

FIRST, LAST = 2, 3  # seconds of peace at the beginning and at the end
PAUSE = 1.2  # seconds between two events, on average
SORTED, HOLDING = "sorted", "shaky"  # destinations with partitions; dead messages of the second one hold back others
PARTITIONS, FEW_PARTITIONS = 8, 2  # how many they have, at most
SHAKY = {HOLDING: [HOLDING, *(f"{HOLDING}:{n}" for n in range(FEW_PARTITIONS))], "shakier": ["shakier"]}  # destinations that refuse now and then; their streams
DESTINATIONS = ["orders", "payments", "mail", SORTED, *SHAKY]
STREAMS = [*DESTINATIONS, *(f"{SORTED}:{n}" for n in range(PARTITIONS)), *SHAKY[HOLDING][1:]]
SHORT, SHORT_PAUSE = 60, 0.4  # a shorter run has more of them, so that it has some of each kind

# What may happen, and how often. The names are those of methods in events.py and administration.py.
KINDS = {
    # Processes and servers die
    "kill_backend": 4, "kill_dispatcher": 6, "kill_launcher": 2, "kill_postmaster": 2,
    "terminate_backend": 5, "terminate_dispatcher": 4, "terminate_launcher": 2,
    "cancel_backend": 4, "cancel_dispatcher": 3,
    "stop_postgres_immediate": 4, "stop_postgres_fast": 2, "checkpoint": 2,
    # Redis and the network
    "kill_redis": 7, "freeze_redis": 6, "hinder_redis": 10,
    "delay_network": 4, "cut_network": 6, "truncate_network": 10, "hold_network": 10, "refuse_network": 3,
    "break_stream": 10, "forbid_destination": 4, "forbid_streams": 4,
    # Administrators
    "move_server": 1,
    "pause_destination": 4, "switch_off": 3, "change_settings": 8, "clean_up": 4, "replay": 5, "look": 4,
    "let_messages_die": 6, "retry": 5, "discard": 4,
    "set_partitions": 5, "alter_endpoint": 3, "come_and_go_endpoint": 4, "equip_endpoint": 2,
    "reindex": 12, "create_index": 8, "drop_index": 5, "rewrite_table": 8, "hold_tables": 3, "dump": 4,
    "drop_database_of_others": 3, "copy_database": 2, "come_and_go_database": 2,
    "jump_clock": 5, "leap_clock": 1,
}  # fmt: skip
LOSSY_KINDS = {
    "rewind_redis": 20,
    "leap_clock": 0,  # the log would forget what Redis has lost
}
CLUSTER_KINDS = {
    "rewind_redis": 0,  # by failovers
    "fail_over": 12, "empty_node": 3, "move_slot": 12, "reshard": 4, "abandon_move": 8, "tear_slot": 4,
}  # fmt: skip
KILL_POINT_KINDS = {"die_at_kill_point": 20}
NODES, SHARDS = 6, 3  # of a cluster
SLOTS_OF_STORE = range(0, 16384, 1024)
OURS = ["outbox:lease:", "outbox:fence:"]  # and then the id of the instance

# Segments of each ring; None is the one that is written when it happens.
SEGMENTS = {"log": [None, None, 0, 1, 2, 3], "window": [None, 0, 1, 2, 3], "record": [None, None, *range(12)], "history": [None, *range(6)]}
OTHER_TABLES = ["outbox.deferred", "tabled_inbox", "outbox.endpoint", "outbox.destination", "outbox.ring", "outbox.compacted"]


@dataclass
class Event:
    at: float  # seconds after the beginning
    kind: str
    arguments: dict = field(default_factory=dict)

    def __str__(self):
        arguments = ", ".join(f"{name} {value}" for name, value in self.arguments.items())
        return f"{self.at:7.2f}  {self.kind}  {arguments}".rstrip()


def kinds(lossy, cluster, kill_points, only):
    """What may happen in such a run; only these, if any are given."""
    all_kinds = {**KINDS, **(LOSSY_KINDS if lossy else {}), **(CLUSTER_KINDS if cluster else {}), **(KILL_POINT_KINDS if kill_points else {})}
    return {kind: times for kind, times in all_kinds.items() if kind in (only or all_kinds)}


def make(seed, seconds, retention, lossy, cluster, kinds):
    """The events of a run, in their order."""
    chance = random.Random(seed)
    pause = SHORT_PAUSE if seconds < SHORT else PAUSE
    events = []
    bag = [kind for kind, times in kinds.items() if times]  # so that a short run has some of each kind
    chance.shuffle(bag)
    at = FIRST
    while at < seconds - LAST:
        if not bag:
            bag = [kind for kind, times in kinds.items() for _ in range(times)]
            chance.shuffle(bag)
        kind = bag.pop()
        event = Event(round(at, 2), kind, arguments(chance, kind, retention, lossy))
        events.append(event)
        if cluster:
            event.arguments.update(arguments_in_cluster(chance, kind, event.arguments))
        at += min(chance.expovariate(1 / pause), 4 * pause)
    return events


def arguments(chance, kind, retention, lossy):
    destinations = [*SHAKY]
    seconds = round(chance.uniform(0.1, 1) ** 2 * 5, 2)  # for what lasts a while
    if kind in ("kill_backend", "terminate_backend", "cancel_backend"):
        return {"which": place(chance)}
    if kind in ("kill_postmaster", "stop_postgres_immediate", "stop_postgres_fast", "kill_redis", "freeze_redis"):
        return {"seconds": seconds}
    if kind == "move_server":
        return {"seconds": seconds, "lease_is_lost": chance.random() < 0.5}
    if kind == "die_at_kill_point":
        manner = chance.choice(["end", "kill", "server"])
        return {"which": place(chance), "manner": manner, "times": chance.choice([1, 1, 4]), "seconds": seconds + 5}
    if kind == "forbid_streams":
        return {"streams": chance.sample(STREAMS, chance.randint(1, 6)), "seconds": seconds}
    if kind in ("hold_network", "refuse_network", "hold_tables", "switch_off", "drop_database_of_others", "leap_clock"):
        return {"seconds": seconds}
    if kind == "delay_network":
        return {"seconds": seconds, "delay": chance.choice([0.005, 0.05, 0.4, 1.5])}
    if kind == "truncate_network":
        return {"direction": chance.choice(["to Redis", "to the client"]), "size": int(10 ** chance.uniform(0, 5))}
    if kind == "break_stream":
        return {"stream": chance.choice(SHAKY[chance.choice(destinations)]), "seconds": seconds}
    if kind == "forbid_destination":
        return {"dest": chance.choice(destinations), "seconds": seconds}
    if kind == "let_messages_die":
        streams = SHAKY[chance.choice([HOLDING, *destinations])]
        return {"attempts": chance.randint(1, 3), "streams": streams, "seconds": round(2 * seconds + 3, 2)}
    if kind == "retry":
        return {"which": chance.choice([None, place(chance)])}  # None: all
    if kind == "discard":
        return {"which": place(chance)}
    if kind == "pause_destination":
        return {"dest": chance.choice([*destinations, None, None]), "seconds": seconds}  # None: all
    if kind == "hinder_redis":
        how = chance.choice(["OOM", "NOREPLICAS", "READONLY", "NOSCRIPT", "kick", "small", "small", "small"])
        return {"how": how, "seconds": seconds + 3 if how == "small" else seconds}
    if kind in ("reindex", "create_index", "rewrite_table"):
        return arguments_of_table(chance, kind)
    if kind == "drop_index":
        return {"which": place(chance), "concurrently": chance.random() < 0.5}
    if kind == "replay":
        return {"dest": chance.choice([None, "orders", *destinations]), "back": round(chance.uniform(0, 5), 1)}
    if kind == "set_partitions":
        dest = chance.choice([SORTED, HOLDING])
        return {"dest": dest, "partitions": chance.choice([None, 1, 2, 3, PARTITIONS] if dest == SORTED else [None, 1, FEW_PARTITIONS])}
    if kind == "alter_endpoint":
        return {"name": chance.choice(["short", "tabled", "stored"]), "concurrency": chance.choice(["optimistic", "pessimistic"])}
    if kind == "come_and_go_endpoint":
        return {"force": chance.random() < 0.5}
    if kind == "equip_endpoint":
        return {"name": chance.choice(["moving", "sold"])}
    if kind == "jump_clock":
        return {"seconds": round(chance.uniform(-retention / 12, retention / 12), 2)}
    if kind == "change_settings":
        return change_of_settings(chance, lossy)
    if kind == "rewind_redis":
        return {"back": round(chance.uniform(0, 6), 1)}
    return {}


def place(chance):
    """Which one of several: from 0 to below 1."""
    return int(1000 * chance.random()) / 1000


def arguments_in_cluster(chance, kind, others):
    """Those beside the others, or in their place."""
    seconds = round(chance.uniform(0.1, 1) ** 2 * 8, 2)
    key = chance.choice([*STREAMS, *OURS, chance.choice(SLOTS_OF_STORE)])
    if kind in ("kill_redis", "freeze_redis"):
        return {"node": chance.randrange(NODES), "seconds": seconds}
    if kind.endswith("_network"):
        return {"node": chance.choice([None, *range(NODES)])}
    if kind == "hinder_redis":
        how = chance.choice(["OOM", "NOREPLICAS"]) if others["how"] == "READONLY" else others["how"]
        return {"how": how, "node": None if how == "small" else chance.choice([None, *range(NODES)])}
    if kind == "forbid_streams":
        return {"node": chance.choice([None, None, *range(NODES)])}
    if kind == "fail_over":
        how, lag = chance.choice([("", 0), ("FORCE", 0), ("FORCE", 1), ("TAKEOVER", 0), ("TAKEOVER", 1), ("TAKEOVER", 1)])
        return {"shard": chance.randrange(SHARDS), "how": how, "lag": lag and round(seconds / 2, 2)}
    if kind == "empty_node":
        return {"shard": chance.randrange(SHARDS), "how": chance.choice(["FLUSHALL", "restart"])}
    if kind == "move_slot":
        return {"key": key, "by": chance.randint(1, SHARDS - 1)}
    if kind == "reshard":
        return {"keys": chance.sample(STREAMS, chance.randint(2, 8)), "by": chance.randint(1, SHARDS - 1)}
    if kind in ("abandon_move", "tear_slot"):
        key = chance.choice([key, *DESTINATIONS])  # those that are written to most of all
        keep = chance.choice(["ours", "ours", "theirs", "theirs", "all"])
        seconds = round(chance.uniform(10, 25) if kind == "tear_slot" else seconds / 2, 2)
        fails_over = chance.choice([None, None, "source", "source", "target"])
        return {"key": key, "by": chance.randint(1, SHARDS - 1), "keep": keep, "seconds": seconds, "fails_over": fails_over}
    return {}


def arguments_of_table(chance, kind):
    table = chance.choices([*SEGMENTS, None], [4, 2, 4, 1, 2])[0]
    if table is None:
        table = chance.choice(OTHER_TABLES[:2] if kind == "create_index" else OTHER_TABLES)
    result = {"table": table, "segment": chance.choice(SEGMENTS.get(table, [None]))}
    if kind == "rewrite_table":
        return {**result, "how": chance.choice(["VACUUM FULL", "CLUSTER", "VACUUM (FREEZE)"])}
    if kind == "create_index":
        result["column"] = chance.randrange(12)
    return {**result, "concurrently": chance.random() < 0.7}


def change_of_settings(chance, lossy):
    settings = {
        "outbox.batch_size": chance.choice([1, 3, 50, 500]),
        "outbox.poll_interval": chance.choice(["20ms", "100ms", "2s"]),
        "outbox.cleanup_interval": chance.choice(["100ms", "100ms", "1s"]),
        "outbox.command_timeout": chance.choice(["300ms", "1s", "1s", "5s"]),
        "outbox.record_segment_size": chance.choice(["64kB", "1MB", "4MB"]),
        # Not full for long: with a store, a dispatcher keeps all for a whole replay window after its start.
        "outbox.max_log_size": chance.choice(["0", "0", "0", "64MB" if lossy else "4MB"]),
        "outbox.concurrency": chance.choice(["optimistic", "pessimistic"]),
    }
    if not lossy:
        settings["outbox.replay_window"] = chance.choice(["1s", "2s", "2s", "5s"])
    return settings
