"""Runs of repeated tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.decode.repetition import ends, longest_run, runs_at_end


def plain(tokens: list[int], last: int) -> int:
    """The tokens of the longest run that ends at a place, counted one by one."""
    longest = 0
    for period in range(1, 17):
        size = period
        while last - size >= 0 and tokens[last - size] == tokens[last - size + period]:
            size += 1
        if size >= 2 * period and last + 1 >= size:
            longest = max(longest, size)
    return longest


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_runs_are_those_counted_one_by_one(tokens: list[int]) -> None:
    expected = [plain(tokens, last) for last in range(len(tokens))]
    assert longest_run(tokens) == max(expected)
    assert runs_at_end(np.array([tokens]))[0] == expected[-1]


@pytest.mark.parametrize(("tokens", "run"), [([], 0), ([1], 0), ([1, 2], 0), ([5, 1, 2, 1, 2, 1], 5), ([3] * 9, 9)])
def test_the_longest_run(tokens: list[int], run: int) -> None:
    assert longest_run(tokens) == run


def test_the_end_of_the_best_path_follows_its_parents() -> None:
    tokens = [[10, 11], [20, 21], [30, 31]]
    parents = [[0, 0], [1, 0], [1, 0]]
    history = np.array([[tokens], [parents]])
    assert ends(history, 2, 3).tolist() == [[10, 21, 30]]
    assert ends(history, 2, 2).tolist() == [[21, 30]]
    assert ends(history, 1, 2).tolist() == [[11, 20]]
