#!/usr/bin/env python3
"""Adds up orders: reads their events in a consumer group and applies each once.

    consumer.py REDIS_URL NAME [--claim-after SECONDS] [--until-idle]

NAME tells this consumer from the others of the group. The totals of all customers
are in the hash "totals" of the same Redis. Prints for each event its id and
whether it was applied or known, or poison: no event, and now in a stream of its own.

An event can come more than once: when a consumer died before it acknowledged,
and when Redis lost its newest writes and the outbox sent them again. The second
kind is a new entry of the stream, so what tells them is the field "id".
"""

import argparse
import json

import redis

STREAM = "order-events"
GROUP = "totals"
TOTALS = "totals"
DEAD = "order-events:dead"
COUNT = 100  # entries read at a time
BLOCK = 1000  # ms to wait for new ones
REMEMBER = 7 * 24 * 3600  # seconds that an id is remembered


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--claim-after", type=float, default=60, help="seconds until a consumer counts as dead")
    parser.add_argument("--until-idle", action="store_true", help="stop when there is nothing to read")
    options = parser.parse_args()

    # Bodies that are not UTF-8 are poison here, and are set aside as they are. Where
    # bodies are bytes, leave both out.
    server = redis.Redis.from_url(options.url, decode_responses=True, encoding_errors="surrogateescape")
    create_group(server)
    while True:
        entries = read(server, options.name, int(options.claim_after * 1000))
        for entry, fields in entries:
            try:
                is_new = apply(server, entry, fields)
            except (ValueError, KeyError, TypeError) as error:
                set_aside(server, entry, fields, error)
                print(fields.get("id"), "poison", flush=True)
                continue
            print(fields["id"], "applied" if is_new else "known", flush=True)
        if options.until_idle and not entries:
            break


def create_group(server):
    try:
        server.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def read(server, name, claim_after):
    """Return entries that a dead consumer left, or else new ones."""
    _, abandoned, *_ = server.xautoclaim(STREAM, GROUP, name, claim_after, count=COUNT)
    if abandoned:
        return abandoned
    answer = server.xreadgroup(GROUP, name, {STREAM: ">"}, count=COUNT, block=BLOCK)
    return answer[0][1] if answer else []


def set_aside(server, entry, fields, error):
    """Put what is no event where somebody will look at it: it will never be one."""
    with server.pipeline(transaction=True) as pipe:
        pipe.xadd(DEAD, {**fields, "entry": entry, "error": repr(error)})
        pipe.xack(STREAM, GROUP, entry)
        pipe.execute()


def apply(server, entry, fields):
    """Apply an event unless its id is known: effect, mark and acknowledgement in one MULTI."""
    event = json.loads(fields["body"])
    customer, amount = str(event["customer"]), int(event["amount"])  # checked first: a MULTI has no rollback
    mark = f"{GROUP}:seen:{fields['id']}"

    def work(pipe):
        is_new = not pipe.exists(mark)
        pipe.multi()
        if is_new:
            pipe.set(mark, 1, ex=REMEMBER)
            pipe.hincrby(TOTALS, customer, amount)
        pipe.xack(STREAM, GROUP, entry)
        return is_new

    # Begins again if another consumer sets the mark meanwhile.
    return server.transaction(work, mark, value_from_callable=True)


if __name__ == "__main__":
    main()
