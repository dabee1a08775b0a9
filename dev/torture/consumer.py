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
        self.losses = collections.defaultdict(list)  # stream → when it was seen that it had lost something, in milliseconds
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
        client = self.server.server_of(stream, 2)
        if stream in self._last and not client.xrange(stream, self._last[stream], self._last[stream]):
            self.losses[stream].append(time.time() * 1000)
            del self._last[stream]
        while page := client.xrange(stream, b"(" + self._last[stream] if stream in self._last else "-", count=PAGE):
            for entry_id, fields in page:
                self.read[stream][key_of(fields)] = int(entry_id.split(b"-")[0])
            self._last[stream] = page[-1][0]

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

    def excused(self):
        """Messages that were read long before their stream lost something: it is too late for them to come again."""
        return {
            message
            for stream, losses in self.losses.items()
            for message, at in self.read[stream].items()
            if at < max(losses) - KEPT * 1000
        }
