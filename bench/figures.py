"""Figures of several rounds: medians, their spread, and what may be concluded from them.

A machine is faster in one minute than in the next, so what is compared was measured in
the same round, and what counts is the median of the rounds' ratios. Where the ratios
of the middle half of the rounds differ by more from each other than their median does from
1, nothing is concluded, nor from fewer than three rounds.
"""
import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    middle: float   # from the first quartile to the third

    def conclusive(self):
        return self.middle <= abs(self.median - 1)


def spread(values):
    first, _, third = statistics.quantiles(values, method="inclusive") if len(values) > 2 else (0, 0, math.inf)
    return Spread(statistics.median(values), min(values), max(values), third - first)


def ratio(values, base):
    """Of two lists of figures, one for each round."""
    return spread([value / other for value, other in zip(values, base)])


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]
