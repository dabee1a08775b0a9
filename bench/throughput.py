"""The whole job of each rival: the caller's transaction with its business row and the id of
the incoming message, and the outgoing message in Redis.

In each round every rival has a turn: the round-trip floor for a second, which tells how
fast the machine is at this moment, and callers at full speed for some seconds, its relay at
work; then the clock runs until the last message is in its stream, and the books are
compared. The floor is first in one round and last in the next, and the turns of a round begin
with another rival each time. A relay that is not done when patience ends has lost no message
by that: it goes on in its next turn.
"""
import time
from functools import partial

import books
import load
import rivals
from servers import cpu_of, cpu_of_machine, forget_streams, redis_pid, sql, stream_length, wal_position
from steps import QUICK, SMALLEST, Step

# With synchronous_commit = on these tell nothing more.
OFF_ONLY = (rivals.MANY, rivals.UNDISPATCHED, rivals.OUTBOX_BESIDE_OPEN, rivals.POLLED_BESIDE_OPEN, rivals.UNRELAYED, rivals.GRAPHILE, rivals.PG_BOSS)

# What a quick run has no time for, and what it measures with synchronous_commit = on.
NOT_QUICK = (rivals.STATEMENT, rivals.PIPELINED, rivals.MANY, rivals.UNRELAYED, rivals.OUTBOX_BESIDE_OPEN, rivals.POLLED_STATEMENT,
             rivals.POLLED_BESIDE_OPEN)
QUICK_ON = (rivals.OUTBOX, rivals.POLLED)

# What the test of the bench runs.
SMALLEST_OFF = (rivals.OUTBOX, rivals.POLLED)

FLOOR_SECONDS = 1

WARM_UP_LESS = 4  # so much less of those that are slow


def steps(scale):
    for number in range(scale.rounds):
        for rival, synchronous in rotated(entrants(scale), number):
            yield Step(f"throughput, synchronous_commit {synchronous}", rival.title, scale.seconds + FLOOR_SECONDS + scale.warm_up / 5000 + 0.8,
                       partial(take_turn, rival, synchronous, scale, number), say)


def entrants(scale):
    """Pairs of a rival and a setting of synchronous_commit."""
    if scale is SMALLEST:
        off, on = SMALLEST_OFF, ()
    elif scale is QUICK:
        off, on = [rival for rival in rivals.ALL if rival not in NOT_QUICK], QUICK_ON
    else:
        off, on = rivals.ALL, [rival for rival in rivals.ALL if rival not in OFF_ONLY]
    return [(rival, "off") for rival in off] + [(rival, "on") for rival in on]


def rotated(entries, number):
    turn = number * 5 % len(entries)
    return entries[turn:] + entries[:turn]


def say(turn):
    text = f"{turn['callers']:.0f} transactions/s, whole job {turn['whole']:.0f}/s"
    if turn["late"]:
        return text + f", {turn['late']} messages were not there in time"
    return text + f", {turn['missing']} missing, {turn['doubled']} doubled"


def take_turn(rival, synchronous, scale, number):
    """Returns the figures of one turn; the books are part of them."""
    rivals.prepare(rival)
    if number % 2 == 0:
        return {**measure_floor(rival, synchronous), **measure_rival(rival, synchronous, scale)}
    return {**measure_rival(rival, synchronous, scale), **measure_floor(rival, synchronous)}


def measure_floor(rival, synchronous):
    """That of the same client, for not all clients take the same."""
    floor = rivals.FLOOR_OF_CLIENT if rival.client else rivals.FLOOR
    rivals.prepare(floor)
    before = cpu_of_machine()
    done = load.run(floor, FLOOR_SECONDS, synchronous)
    return {"floor": done.rate, "floor_cpu": (cpu_of_machine() - before) / done.transactions}


def measure_rival(rival, synchronous, scale):
    forget_streams()
    sql(rival.server, rival.database, "TRUNCATE business")
    sql(rival.server, "postgres", "CHECKPOINT")
    with rivals.at_work(rival, synchronous) as relay:
        warm = load.run(rival, 1, synchronous, transactions=scale.warm_up // (WARM_UP_LESS if rival.slow else 1))
        before = warm.transactions * rival.messages + books.count_owed(rival.database)
        wait_until_arrived(rival, relay, before, scale.patience)
        turn = measure(rival, relay, synchronous, scale, before)
    if turn["late"] and not rival.slot:
        books.carry_over(rival.server, rival.database, rival.messages)
    else:
        books.forget_owed(rival.database)
    return turn


def measure(rival, relay, synchronous, scale, before):
    """before: how many messages were due when the clock starts."""
    pids, wal = relay.pids(), wal_position(rival.server)
    machine, at_relay, at_redis = cpu_of_machine(), cpu_of(pids), cpu_of([redis_pid()])
    start = time.monotonic()
    done = load.run(rival, scale.seconds, synchronous)
    due = before + done.transactions * rival.messages
    late = 0 if wait_until_arrived(rival, relay, due, scale.patience) else due - stream_length()
    drained = time.monotonic() - done.ended
    per = done.transactions
    turn = {
        "callers": done.rate,
        "whole": max(per - late / rival.messages, 1) / (per / done.rate + drained),
        "drained_after": drained,
        "open_for": rivals.open_for() if rival.beside_open else 0,
        "elapsed": time.monotonic() - start,
        "machine_cpu": (cpu_of_machine() - machine) / per,
        "relay_cpu": (cpu_of(pids) - at_relay) / per / rival.messages,
        "redis_cpu": (cpu_of([redis_pid()]) - at_redis) / per / rival.messages,
        "wal": (wal_position(rival.server) - wal) / per,
        "missing": 0, "doubled": 0, "late": late,
    }
    if rival.delivers and not late:
        turn["missing"], turn["doubled"] = books.compare(rival.server, rival.database, rival.messages)
    return turn


def wait_until_arrived(rival, relay, due, patience):
    """Returns whether so many messages have arrived before patience was at its end."""
    if not rival.delivers:
        return True
    deadline = time.monotonic() + patience
    while stream_length() < due:
        relay.check()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True
