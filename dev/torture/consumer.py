"""Reads the streams of a cluster all the time, as consumers do.

A node may lose what is older than what the outbox keeps; then only its consumers have
it. And what is not where it was read shows which streams have lost something, and when.
"""

import collections
import threading
import time

import redis

from check import PAGE, key_of

INTERVAL = 1  # seconds between two looks
KEPT = 40  # seconds for which each lost message must come again; outbox.replay_window is 60


class Consumer:
    def __init__(self, server, streams):
        self.server = server
        self.streams = streams
        self.read = collections.defaultdict(dict)  # stream → message → milliseconds of its last entry
        self.losses = 0  # how often a stream had lost what was read last
        self.excused = set()  # messages that were read long before they were lost: it is too late for them to come again
        self.stored = set()  # ids seen in the deduplication store
        self._last = {}  # stream → the entry that was read last
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self):
        self._thread.start()

    def end(self):
        self._ends.set()
        self._thread.join()

    def _go_on(self):
        while not self._ends.wait(INTERVAL):
            self.look()

    def look(self):
        """Read what is new; a node that does not answer, or has something else in the place of the stream, is asked later."""
        for stream in self.streams:
            try:
                self._read(stream)
            except (redis.RedisError, ValueError):
                pass
        self.look_at_store()

    def _read(self, stream):
        """Read what is new; if the entry that was read last is gone, read all of it."""
        client = self.server.server_of(stream, 2)
        last = self._last.get(stream)
        is_lost = last and not client.xrange(stream, last, last)
        if is_lost:
            last = None
        found = {}
        while page := client.xrange(stream, b"(" + last if last else "-", count=PAGE):
            for entry_id, fields in page:
                found[key_of(fields)] = int(entry_id.split(b"-")[0])
            last = page[-1][0]
        if is_lost:
            self.losses += 1
            too_old = (time.time() - KEPT) * 1000
            self.excused.update(message for message, at in self.read[stream].items() if at < too_old and message not in found)
            self.read[stream].clear()
        self.read[stream].update(found)
        self._last[stream] = last

    def look_at_store(self):
        """Return the ids that are in the store now."""
        found = set()
        for node in self.server.nodes:
            try:
                if node.is_up and node.is_master():
                    found.update(key[-16:] for key in node.client(2).scan_iter(match="outbox:dedup:*", count=1000))
            except redis.RedisError:
                pass
        self.stored |= found
        return found
