"""Tells what is done, and how long the rest will take.

Each step says beforehand how many seconds it may take. How long those that are done
really took corrects what is said of the rest.
"""
import time


class Progress:
    def __init__(self, seconds):
        self.expected, self.done = seconds, 0
        self.start = time.monotonic()

    def step(self, name, seconds):
        """Returns a context for a step that was expected to take so long."""
        return Step(self, name, seconds)

    def skip(self, seconds):
        self.expected -= seconds

    def left(self):
        elapsed = time.monotonic() - self.start
        pace = elapsed / self.done if self.done > 30 else 1
        return max(self.expected - self.done, 0) * pace

    def say(self, name, more):
        share = min(100 * self.done / max(self.expected, 1), 100)
        print(f"{share:3.0f} %, {minutes(self.left())} left | {name}: {more}", flush=True)


def minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Step:
    def __init__(self, progress, name, seconds):
        self.progress, self.name, self.seconds = progress, name, seconds
        self.more = "done"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.progress.done += self.seconds
        self.progress.say(self.name, self.more if error is None else f"failed: {error}")
