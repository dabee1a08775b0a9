"""The queue of incoming messages, as a broker would be: at least once.

A message stays with the queue until a client has acknowledged it. Whatever
prevents that (the client died, its connection broke, another client was
faster) makes the queue deliver it again, to whoever is idle.
"""

import collections
import random

ACCOUNTS, TELLERS = 100_000, 10  # of each branch, as pgbench makes them
TWICE = 20  # one in so many messages is delivered twice


class Intake:
    def __init__(self, branches):
        self.branches = branches
        self.random = random.Random()
        self.is_open = True
        self.made = 0  # messages so far
        self.acknowledged = 0  # deliveries that are settled
        self.processed = 0  # of these, how many were new
        self.refused = 0  # and how many were duplicates
        self.raced = 0  # deliveries that lost a race and were repeated
        self._in_hand = {}  # client → message it has not acknowledged
        self._returned = collections.deque()  # messages to deliver again at once
        self._second_copies = collections.deque()  # (due, message, first client)
        self._twin = None  # message that waits for two idle clients

    def close(self):
        """Make no more new messages; what is left is still delivered."""
        self.is_open = False

    @property
    def is_done(self):
        return not (self.is_open or self._in_hand or self._returned or self._second_copies or self._twin)

    def hand_out(self, idle):
        """Yield (client, message) for idle clients as long as there is work."""
        idle = collections.deque(idle)
        while idle:
            message = self._twin or self._next(idle[0])
            if message is None:
                idle.popleft()  # there may be something for the others
                continue
            copies = 2 if message is self._twin else 1
            if len(idle) < copies:
                return  # another client will be idle in a moment
            self._twin = None
            for _ in range(copies):
                client = idle.popleft()
                self._in_hand[client] = message
                yield client, message

    def settle(self, client, outcome):
        """A client says what came of its message; return the message."""
        message = self._in_hand.pop(client)
        if outcome in ("processed", "duplicate"):
            self.acknowledged += 1
            self.processed += outcome == "processed"
            self.refused += outcome == "duplicate"
        else:
            self.raced += outcome == "raced"
            self._returned.append(message)
        return message

    def give_back(self, client):
        """A client is gone: deliver what it had again."""
        message = self._in_hand.pop(client, None)
        if message is not None:
            self._returned.append(message)

    def _next(self, client):
        """Choose what this client gets: what came back, a second copy, or something new."""
        if self._returned:
            return self._returned.popleft()
        if self._second_copies:
            due, message, first = self._second_copies[0]
            if (due <= self.made or not self.is_open) and first is not client:
                self._second_copies.popleft()
                return message
        if not self.is_open:
            return None
        return self._new(client)

    def _new(self, client):
        message = self._make()
        if self.made % TWICE == 0:
            # In turn: two clients get it at the same time, or another one gets it later.
            if self.made // TWICE % 2:
                self._twin = message
            else:
                later = self.made + self.random.randint(1, 500)
                self._second_copies.append((later, message, client))
        return message

    def _make(self):
        self.made += 1
        branch = self.random.randint(1, self.branches)
        return {
            "id": f"transfer-{self.made:08d}",
            "account": (branch - 1) * ACCOUNTS + self.random.randint(1, ACCOUNTS),
            "teller": (branch - 1) * TELLERS + self.random.randint(1, TELLERS),
            "branch": branch,
            "delta": self.random.randint(-5000, 5000),
        }
