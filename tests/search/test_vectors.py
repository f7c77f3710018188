"""Loops that are written for vectors give what plain ones give, to the bit where the order of adding is the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.search.compiled_runs import TOGETHER, sum_runs
from knnmt.search.compiled_squares import squared


@given(seed=st.integers(0, 2**32 - 1), runs=st.lists(st.integers(1, 50), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
def test_adding_up_runs(seed: int, runs: list[int]) -> None:
    """What stands behind a run, or behind all of them, is added to nothing, whatever it is."""
    runs.sort(reverse=True)
    values = np.random.default_rng(seed).random(sum(runs) + TOGETHER, np.float32)
    values[sum(runs) :] = np.nan
    expected, at = np.zeros(runs[0], np.float32), 0
    for length in runs:
        expected[:length] += values[at : at + length]
        at += length
    total = np.full(runs[0] + TOGETHER, np.nan, np.float32)
    sum_runs(values, np.array(runs, np.int32), total)
    np.testing.assert_array_equal(total[: runs[0]], expected)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 32, 50, 72])
def test_squared_distances_of_rows(width: int) -> None:
    made = np.random.default_rng(width)
    row, state = made.integers(-128, 128, width, np.int8), (50 * made.normal(size=width)).astype(np.float32)
    expected = np.square(row.astype(np.float64) - state).sum()
    assert squared(row.ctypes.data, state.ctypes.data, width) == pytest.approx(expected, rel=1e-5)
