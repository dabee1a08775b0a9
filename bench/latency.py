"""Commit to stream on an idle server: latency.py PGHOST REDIS_SOCKET

One message at a time; the reader sits in a blocked XREAD. Both ends are on this
machine and read the same monotonic clock.
"""
import sys
import threading
import time

import psycopg
import redis

MESSAGES = 1000
STREAM = "latency"


def read_arrivals(socket, arrived, ready):
    connection = redis.Redis(unix_socket_path=socket)
    last = "0-0"
    ready.set()
    while len(arrived) < MESSAGES:
        for _, entries in connection.xread({STREAM: last}, block=10000) or []:
            now = time.monotonic()
            for last, fields in entries:
                arrived[int(fields[b"body"])] = now


def main(host, socket):
    arrived, ready, sent, returned = {}, threading.Event(), {}, {}
    reader = threading.Thread(target=read_arrivals, args=(socket, arrived, ready))
    reader.start()
    ready.wait()
    with psycopg.connect(host=host, dbname="postgres", user="postgres", autocommit=True) as connection:
        for number in range(MESSAGES):
            time.sleep(0.01)  # idle: let the dispatcher fall asleep
            sent[number] = time.monotonic()
            connection.execute("SELECT outbox_enqueue(%s, %s::text)", (STREAM, str(number)))
            returned[number] = time.monotonic()
    reader.join()
    for name, start in (("statement sent", sent), ("commit returned", returned)):
        delays = sorted((arrived[n] - start[n]) * 1e6 for n in range(MESSAGES))
        print(f"{name} -> seen by XREAD: p50 {delays[MESSAGES // 2]:.0f} us, "
              f"p99 {delays[MESSAGES * 99 // 100]:.0f} us")


if __name__ == "__main__":
    main(*sys.argv[1:])
