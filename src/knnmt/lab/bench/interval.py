"""Ratios of paired times with their 95% intervals, and times with their spread."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# the 97.5% quantiles of Student's t for 1, 2, … 30 degrees of freedom; close to 1.96 + 2.5/n above
T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """The mean of paired ratios, and the interval that holds the true one in 95 of 100 measurements."""

    mean: float
    low: float
    high: float
    pairs: int

    def agrees(self, other: "Ratio") -> bool:
        """Whether the intervals of two measurements meet."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Spread:
    """The median of some times, and the quartiles around it."""

    median: float
    low: float
    high: float


def ratio(times: Sequence[float], base: Sequence[float]) -> Ratio:
    """How many times as long as `base` something took, pair by pair.

    The mean is that of the logarithms, so that the ratio of a to b is one over that of b to a.
    """
    logs = [math.log(mine / theirs) for mine, theirs in zip(times, base, strict=True)]
    middle, count = statistics.fmean(logs), len(logs)
    if count < 2:
        return Ratio(math.exp(middle), 0.0, math.inf, count)
    quantile = T[count - 2] if count - 2 < len(T) else 1.96 + 2.5 / (count - 1)
    reach = quantile * statistics.stdev(logs) / math.sqrt(count)
    return Ratio(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), count)


def spread(times: Sequence[float]) -> Spread:
    """The median and the quartiles."""
    if len(times) < 2:
        return Spread(times[0], times[0], times[0])
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return Spread(median, low, high)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The b of the power law value = a·size^b that fits best: 1 is growth in proportion, 0 is none."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope
