"""How lookups are computed in tests."""

import importlib.util
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from .examples import one_thread


@pytest.fixture(autouse=True, scope="module")
def lone_thread() -> Iterator[None]:
    """Compute with one thread: for models and stores so small, threads wait longer for each other than they work."""
    with one_thread():
        yield


@pytest.fixture(scope="module", params=["compiled", "torch"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled loops, and what does the same without numba, or on a GPU."""
    found = importlib.util.find_spec("numba") if request.param == "compiled" else None
    with patch("knnmt.search.find_spec", return_value=found):
        yield
