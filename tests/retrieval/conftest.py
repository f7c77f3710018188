"""For models and stores as small as those of tests, threads wait longer for each other than they work."""

from collections.abc import Iterator

import pytest

from .examples import one_thread


@pytest.fixture(autouse=True, scope="module")
def lone_thread() -> Iterator[None]:
    """Compute with one thread."""
    with one_thread():
        yield
