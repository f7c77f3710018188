"""Intervals hold what they should, and nothing depends on which of two is the base."""

import math
import random

import pytest

from knnmt.lab.bench.interval import exponent, ratio, spread


def noisy(scale: float, seed: int, count: int = 10) -> list[float]:
    """Times with a drift that all share, and a noise of their own."""
    drift, own = random.Random(0), random.Random(seed)
    return [scale * (1 + drift.random()) * own.gauss(1.0, 0.02) for _ in range(count)]


def test_a_system_takes_as_long_as_itself() -> None:
    same = ratio(noisy(1.0, seed=1), noisy(1.0, seed=2))
    assert same.low < 1.0 < same.high
    assert same.high - same.low < 0.1  # what both share is no noise
    exact = ratio([3.0, 5.0], [3.0, 5.0])
    assert (exact.mean, exact.low, exact.high) == (1.0, 1.0, 1.0)


def test_two_measurements_agree_and_two_systems_do_not() -> None:
    first, second = (ratio(noisy(1.3, seed), noisy(1.0, seed + 1)) for seed in (3, 5))
    slower = ratio(noisy(1.5, 7), noisy(1.0, 8))
    assert first.agrees(second)
    assert second.agrees(first)
    assert not slower.agrees(first)
    assert first.low < 1.3 < first.high


def test_interval_by_hand() -> None:
    found = ratio([1.0, 4.0], [1.0, 1.0])  # logs 0 and log 4: their mean is log 2, their error log 2
    assert found.mean == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0 ** (1 - 12.706))
    turned = ratio([1.0, 1.0], [1.0, 4.0])
    assert turned.mean == pytest.approx(1 / found.mean)
    assert turned.low == pytest.approx(1 / found.high)


def test_intervals_hold_the_truth_95_times_of_100() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(1000):
        times, base = ([rng.lognormvariate(mean, 0.1) for _ in range(10)] for mean in (0.3, 0.0))
        found = ratio(times, base)
        held += found.low < math.exp(0.3) < found.high
    assert 930 <= held <= 970


def test_many_pairs_come_near_the_normal_distribution() -> None:
    times = [1.0, 1.1] * 50
    found = ratio(times, [1.0] * 100)
    assert found.pairs == 100
    assert 1.035 < found.low < found.mean < found.high < 1.065


def test_spread() -> None:
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == spread([5.0, 4.0, 3.0, 2.0, 1.0])
    found = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.low, found.median, found.high) == (2.0, 3.0, 4.0)
    assert spread([7.0]).median == 7.0


def test_exponent() -> None:
    assert exponent([10, 100, 1000], [5, 50, 500]) == pytest.approx(1.0)
    assert exponent([10, 100, 1000], [5, 5, 5]) == pytest.approx(0.0)
    assert exponent([1, 4, 16], [3, 6, 12]) == pytest.approx(0.5)
