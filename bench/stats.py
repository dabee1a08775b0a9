"""Figures of several rounds: medians, their spread, and what may be concluded from them.

A machine is faster in one minute than in the next, so what is compared was measured in
the same round, and what counts is the median of the rounds' ratios. The spread is that of the
middle half of the rounds, of five rounds from the second to the fourth: so a single round in
which the machine did something else does not count. Where the spread is larger than what the
median differs from 1, nothing is concluded, nor from fewer than three rounds.
"""
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    rounds: int

    def conclusive(self):
        return self.rounds > 2 and self.high - self.low <= abs(self.median - 1)


def spread(values):
    low, median, high = statistics.quantiles(values, method="inclusive") if len(values) > 2 else (min(values), statistics.median(values), max(values))
    return Spread(median, low, high, len(values))


def ratio(values, base):
    """Of two lists of figures, one for each round."""
    return spread([value / other for value, other in zip(values, base)])


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]
