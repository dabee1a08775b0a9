"""Figures of several rounds: medians, their spread, and what may be concluded from them.

A machine is faster in one minute than in the next, so what is compared was measured in
the same round, and what counts is the median of the rounds' ratios. Where the ratios
differ by more from each other than their median does from 1, nothing is concluded.
"""
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    def conclusive(self):
        return self.high - self.low <= abs(self.median - 1)


def spread(values):
    return Spread(statistics.median(values), min(values), max(values))


def ratio(values, base):
    """Of two lists of figures, one for each round."""
    return spread([value / other for value, other in zip(values, base)])


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]
