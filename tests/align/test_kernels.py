"""Compiled loops that can be checked alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.align import kernels

from ..oracle import align as oracle


@pytest.mark.parametrize("x", [0.01, 0.3, 1.0, 2.5, 5.999, 6.0, 40.0, 1e6])
def test_digamma(x: float) -> None:
    assert kernels.digamma(x) == pytest.approx(oracle.digamma(x), rel=1e-9, abs=1e-9)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=40), st.integers(0, 2**31 - 1))
@settings(deadline=None)
def test_a_type_is_sought_and_found_in_its_row_only(targets: set[int], other: int) -> None:
    start, stop = 2, 3 + 2 + len(targets)
    places = np.full(stop + 2, -1, np.int32)
    for target in targets:
        places[kernels.seek(places, start, stop, target)] = target
    assert places[start:stop].tolist().count(-1) == 3
    assert all(places[kernels.seek(places, start, stop, target)] == target for target in targets)
    assert places[kernels.seek(places, start, stop, other)] == (other if other in targets else -1)
