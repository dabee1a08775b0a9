"""What will happen, and when: derived from the seed alone."""

import random
from dataclasses import dataclass, field

FIRST, LAST = 2, 3  # seconds of peace at the beginning and at the end
PAUSE = 1.2  # seconds between two events, on average

# What may happen, and how often. The names are those of methods in events.py.
KINDS = {
    "kill_backend": 4, "kill_dispatcher": 6, "kill_launcher": 2, "kill_postmaster": 2,
    "terminate_backend": 5, "terminate_dispatcher": 4, "terminate_launcher": 2,
    "stop_postgres_immediate": 4, "stop_postgres_fast": 2,
    "kill_redis": 7, "freeze_redis": 6, "hinder_redis": 8,
    "delay_network": 4, "cut_network": 6, "truncate_network": 10, "hold_network": 10, "refuse_network": 3,
    "break_destination": 10, "forbid_destination": 4, "pause_destination": 3, "switch_off": 2,
    "rewrite_table": 5, "hold_tables": 3, "clean_up": 4, "change_settings": 6, "checkpoint": 2,
}  # fmt: skip
LOSSY_KINDS = {"rewind_redis": 20}


@dataclass
class Event:
    at: float  # seconds after the beginning
    kind: str
    arguments: dict = field(default_factory=dict)

    def __str__(self):
        arguments = ", ".join(f"{name} {value}" for name, value in self.arguments.items())
        return f"{self.at:7.2f}  {self.kind}  {arguments}".rstrip()


def make(seed, seconds, destinations, lossy):
    """The events of a run, in their order."""
    chance = random.Random(seed)
    kinds = {**KINDS, **(LOSSY_KINDS if lossy else {})}
    events, bag = [], []
    at = FIRST
    while at < seconds - LAST:
        if not bag:  # so that a short run has some of everything
            bag = [kind for kind, times in kinds.items() for _ in range(times)]
            chance.shuffle(bag)
        kind = bag.pop()
        events.append(Event(round(at, 2), kind, arguments(chance, kind, destinations)))
        at += min(chance.expovariate(1 / PAUSE), 4 * PAUSE)
    return events


def arguments(chance, kind, destinations):
    seconds = round(chance.uniform(0.1, 1) ** 2 * 5, 2)  # for what lasts a while
    if kind in ("kill_backend", "terminate_backend"):
        return {"which": round(chance.random(), 3)}
    if kind in ("kill_postmaster", "stop_postgres_immediate", "stop_postgres_fast", "kill_redis", "freeze_redis"):
        return {"seconds": seconds}
    if kind in ("hold_network", "refuse_network", "hold_tables", "switch_off"):
        return {"seconds": seconds}
    if kind == "delay_network":
        return {"seconds": seconds, "delay": chance.choice([0.005, 0.05, 0.4, 1.5])}
    if kind == "truncate_network":
        return {"direction": chance.choice(["to Redis", "to the client"]), "size": int(10 ** chance.uniform(0, 5))}
    if kind in ("break_destination", "forbid_destination"):
        return {"dest": chance.choice(destinations), "seconds": seconds}
    if kind == "pause_destination":
        return {"dest": chance.choice([*destinations, None]), "seconds": seconds}  # None: all
    if kind == "hinder_redis":
        return {"how": chance.choice(["OOM", "NOREPLICAS", "READONLY", "NOSCRIPT", "kick"]), "seconds": seconds}
    if kind == "rewrite_table":
        return {"table": chance.choice([f"{name}_{slot}" for name in ("log", "window", "record") for slot in range(4)])}
    if kind == "change_settings":
        return {
            "outbox.batch_size": chance.choice([1, 3, 50, 500]),
            "outbox.poll_interval": chance.choice(["20ms", "100ms", "2s"]),
            "outbox.cleanup_interval": chance.choice(["100ms", "100ms", "1s"]),
            "outbox.command_timeout": chance.choice(["300ms", "1s", "1s", "5s"]),
        }
    if kind == "rewind_redis":
        return {"back": round(chance.uniform(0, 6), 1)}
    return {}
