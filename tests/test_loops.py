"""Work that is shared out among threads: all of it is done once, and everyone has a part."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.loops import share_out

from .retrieval.examples import with_threads


@given(st.lists(st.integers(0, 9), max_size=11), st.integers(1, 16))
@settings(deadline=None)
def test_every_item_is_done_once(sizes: list[int], threads: int) -> None:
    done = np.zeros(len(sizes), np.int64)

    def loop(first: int, last: int) -> None:
        done[first:last] += 1

    with with_threads(threads):
        share_out(loop, np.array(sizes, np.int64), 1)
    assert (done == 1).all()


@pytest.mark.parametrize("sizes", [[100, 100], [101, 100], [100, 101], [1, 100, 99], [60, 40, 100, 0]])
def test_two_threads_have_half_of_it_each(sizes: list[int]) -> None:
    parts = {}

    def loop(first: int, last: int) -> None:
        parts[threading.current_thread()] = sum(sizes[first:last])

    with with_threads(2):
        share_out(loop, np.array(sizes), 1)
    assert threading.current_thread() in parts
    assert sorted(parts.values())[0] >= 99


def test_what_goes_wrong_in_a_thread_is_told() -> None:
    def loop(first: int, last: int) -> None:
        if first == 0:
            raise ValueError("broken")

    with with_threads(2), pytest.raises(ValueError, match="broken"):
        share_out(loop, np.array([5, 5]), 1)
