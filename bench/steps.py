"""What a run consists of: steps, each of which measures one thing in one round."""
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Scale:
    """How much is measured."""
    rounds: int
    warm_up: int        # transactions before a turn
    seconds: int        # of load in a turn
    patience: int       # seconds until the last message of a turn must have arrived
    drain: int          # messages of a backlog
    samples: int        # messages whose delay is measured in a round
    backlog: int        # that is drained beside callers
    transactions: int   # whose WAL is measured
    factors: tuple      # by which things grow


FULL = Scale(rounds=5, warm_up=2400, seconds=2, patience=30, drain=200_000, samples=200, backlog=600_000, transactions=5000,
             factors=(1, 10, 100))
QUICK = Scale(rounds=3, warm_up=800, seconds=1, patience=10, drain=100_000, samples=50, backlog=200_000, transactions=2000, factors=(1, 10))
SMALLEST = Scale(rounds=1, warm_up=80, seconds=1, patience=30, drain=1000, samples=10, backlog=1000, transactions=80, factors=(1,))
SCALES = {"full": FULL, "quick": QUICK, "smallest": SMALLEST}


@dataclass(frozen=True)
class Step:
    part: str
    name: str                   # of the series that its figures belong to
    seconds: float              # that it may take
    measure: Callable           # returns the figures of a round; None if there are none
    say: Callable = str         # tells of them in a few words


class Results:
    """The figures of all steps: a list for each series, with an entry for each round."""

    def __init__(self, about):
        self.about = about
        self.parts = {}
        self.left_out = {}

    def add(self, step, figures):
        self.parts.setdefault(step.part, {}).setdefault(step.name, []).append(figures)

    def leave_out(self, step, reason):
        """A series with a gap cannot be compared by rounds."""
        self.left_out.setdefault(step.part, {})[step.name] = reason
        self.parts.get(step.part, {}).pop(step.name, None)

    def is_left_out(self, step):
        return step.name in self.left_out.get(step.part, {})

    def wrong_books(self):
        """Of whom a message is missing or doubled."""
        return sorted({name for part in self.parts.values() for name, rounds in part.items()
                       for figures in rounds if figures.get("missing") or figures.get("doubled")})

    def to_json(self):
        return {"about": self.about, "parts": self.parts, "left_out": self.left_out}
