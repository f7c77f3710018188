"""Rows of different lengths in one flat array (CSR): offsets say where each begins."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

BLOCK_SIZE = 1 << 22  # cells that are worked on at a time


def offsets_of(counts: NDArray[np.integer[Any]]) -> Int64:
    """Where each of these counts begins, and their sum at the end: (N,) to (N + 1,)."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def rises(offsets: Int64, total: int) -> bool:
    """Whether these are offsets: from 0 to the total, and never falling."""
    return bool(offsets.size and offsets[0] == 0 and offsets[-1] == total and (offsets[1:] >= offsets[:-1]).all())


def ranges(begin: Int64, lengths: Int64) -> Int64:
    """`lengths[i]` numbers from `begin[i]` on, one range after the other."""
    ends = offsets_of(lengths)
    numbers: Int64 = np.arange(ends[-1]) + np.repeat(begin - ends[:-1], lengths)
    return numbers


def runs(offsets: Int64, rows: Int64) -> Int64:
    """The numbers offsets[r] to offsets[r + 1] of each row r, one row after the other."""
    return ranges(offsets[rows], offsets[rows + 1] - offsets[rows])


def blocks(offsets: Int64) -> Iterator[tuple[int, int]]:
    """Cut rows into runs of at most BLOCK_SIZE cells, or a single longer row: first row, and the one after the last."""
    first = 0
    while first < offsets.size - 1:
        last = max(int(np.searchsorted(offsets, offsets[first] + BLOCK_SIZE, side="right")) - 1, first + 1)
        yield first, last
        first = last
