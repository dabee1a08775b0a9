"""A consumer that only notes when events arrive.

    probe.py REDIS_URL STREAM FIRST

Reads the stream from entry FIRST on, and writes a line for each batch that it
gets: the time, the incoming messages that caused these events, and the last entry.
"""

import json
import signal
import sys
import time

import redis


def main(url, stream, last):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo decides when to stop
    server = redis.Redis.from_url(url)
    while True:
        try:
            batches = server.xread({stream: last}, count=1000, block=1000)
        except redis.RedisError:  # it is being started again
            time.sleep(0.1)
            continue
        now = time.time()
        for _, entries in batches:
            last = entries[-1][0].decode()
            causes = [fields.get(b"cause", b"").decode() for _, fields in entries]
            print(json.dumps({"time": now, "messages": causes, "last": last}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
