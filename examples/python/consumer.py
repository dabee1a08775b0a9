#!/usr/bin/env python3
"""Adds up orders: reads their events in a consumer group and applies each once.

    consumer.py URL-OF-REDIS NAME [CLAIM-AFTER [until-idle]]

To be run in the folder of consume.lua, which says what becomes of an event. NAME tells
this consumer from the others of the group; what another one has read and not
acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
there is nothing to read. Prints for each event its id and what became of it.
"""

import sys

import redis

STREAM, GROUP, TOTALS, DEAD = "order-events", "totals", "totals", "order-events:dead"


def main(url, name, claim_after="60000", until_idle=None):
    server = redis.Redis.from_url(url)
    with open("consume.lua") as file:
        apply = server.register_script(file.read())
    try:
        server.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise

    while True:
        entries = read(server, name, int(claim_after))
        for entry, fields in entries:
            flat = [part for field in fields.items() for part in field]
            answer = apply(keys=[STREAM, TOTALS, DEAD], args=[GROUP, entry, *flat])
            print(*(word.decode() for word in answer), flush=True)
        if until_idle and not entries:
            break


def read(server, name, claim_after):
    """Return entries that a dead consumer left, or else new ones."""
    _, abandoned, *_ = server.xautoclaim(STREAM, GROUP, name, claim_after, count=100)
    if abandoned:
        return abandoned
    answer = server.xreadgroup(GROUP, name, {STREAM: ">"}, count=100, block=1000)
    return answer[0][1] if answer else []


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
