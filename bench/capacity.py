#!/usr/bin/env python3
"""Says how many machines a load takes. The figures are those of docs/scaling.md.

    capacity.py [--messages 10000] [--body 200] [--retention 1] [--keep 1] [--groups 1]
                [--handler 5] [--cores 16] [--share 50]

--messages a second, one for each incoming one; --body bytes of each; --retention days for
which ids are remembered; --keep hours for which entries stay in their streams; --groups
of consumers, each of which reads all; --handler ms for each message in such a group;
--cores of a database server; --share percent of what was measured that is to be used.
"""

import argparse
import math

# Measured on the machine of docs/performance.md, one core each.
CALLER = 44425 / 2  # messages/s of a core of the database server: handler in one statement, synchronous_commit off
CALLER_PLAIN = 15530 / 2  # ... with a statement for each call
DISPATCHER = 104827 / 0.07  # messages/s of a core, in large windows
REDIS_ADD = 1e6 / 406927  # microseconds of its one thread to add an entry
REDIS_READ = 3.0  # ... to hand one to a consumer, 50 with a command
WAL = 500  # bytes of WAL beside the body
LOG = 130  # bytes in the log beside the body
LOG_TIME = 900  # seconds for which the log keeps what was sent
RECORD = 16.2 * 1.2  # bytes on disk for an id
FILTER = 2  # bytes of memory for an id
ENTRY = 110  # bytes of memory for an entry beside the body
WORKER = 1.0  # ms that a worker of examples/partitions adds to the handler


def up(number):
    return f"{math.ceil(number):,}"


def size(number):
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            break
        number /= 1000
    else:
        unit = "TB"
    return f"{number:,.1f} {unit}"


def rows(a):
    rate, share = a.messages, a.share / 100
    cores = rate / (CALLER * share)
    plain = rate / (CALLER_PLAIN * share)
    servers = math.ceil(cores / a.cores)
    ids = rate * a.retention * 86400
    busy = rate * (REDIS_ADD + a.groups * REDIS_READ) / 1e6
    masters = math.ceil(busy / share)
    databases = max(servers, masters, math.ceil(rate / (DISPATCHER * share)))  # each sends to one Redis
    workers = a.groups * rate * (a.handler + WORKER) / 1000 / share
    yield "cores of database servers, handler in one statement", up(cores), f"servers of {a.cores} cores: {up(servers)}"
    yield "… with a statement for each call", up(plain), f"servers: {up(plain / a.cores)}"
    yield "databases, each with a dispatcher", up(databases), f"each takes {rate / databases / DISPATCHER:.3f} of a core"
    yield "WAL besides that of your own rows", f"{size(rate * (WAL + a.body))}/s", f"{size(rate * (WAL + a.body) / servers)}/s for each server"
    yield "log", size(rate * (LOG + a.body) * LOG_TIME), f"and {size(rate * (LOG + a.body) * 3600)} for each hour without Redis"
    yield f"ids, retention of {a.retention:g} d", size(ids * RECORD), f"{size(ids * FILTER)} of memory for their filters"
    yield "Redis masters, by their thread", up(masters), f"{busy:.2f} of a core"
    yield f"memory of all masters, {a.keep:g} h of entries", size(rate * a.keep * 3600 * (ENTRY + a.body)), "twice that with a replica of each"
    yield "network into Redis", f"{size(rate * (ENTRY + a.body))}/s", f"{size(rate * (ENTRY + a.body) * a.groups)}/s out of it"
    yield f"workers, with a handler of {a.handler:g} ms", up(workers), "and as many partitions at least, 4,096 to a destination"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"messages": 10000, "body": 200, "retention": 1, "keep": 1, "groups": 1, "handler": 5, "share": 50}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--cores", type=int, default=16)
    for what, how_much, remark in rows(parser.parse_args()):
        print(f"{what:55} {how_much:>12}   {remark}")


main()
