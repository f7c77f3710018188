"""Experiments on a tiny model, which are to be quick."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from knnmt.tune import grid

from ..retrieval.examples import one_thread


@contextmanager
def quick(**grids: tuple[Any, ...]) -> Iterator[None]:
    """One thread, and grids of tuning that are fast to go through."""
    with one_thread(), pytest.MonkeyPatch.context() as patch:
        for name, values in grids.items():
            patch.setattr(grid, name, values)
        yield
