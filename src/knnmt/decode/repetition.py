"""Loops: a model that has lost its way says the same few tokens again and again, until its limit ends it.

A run is a stretch in which every token is the one `period` places before it, with at least two periods in it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 16  # tokens that are repeated
SPARE = 48  # tokens of a run that prove nothing: three of the longest periods
EVERY = 16  # steps between two looks


def longest_run(tokens: Sequence[int]) -> int:
    """The tokens of the longest run."""
    ids, longest = np.asarray(tokens), 0
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 2) + 1):
        breaks = np.flatnonzero(np.concatenate(([True], ids[period:] != ids[:-period], [True])))
        same = int(np.diff(breaks).max()) - 1
        longest = max(longest, same + period if same >= period else 0)
    return longest


def runs_at_end(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The tokens of the longest run that ends each row. (B, N) to (B,)."""
    longest = np.zeros(len(tokens), dtype=np.int64)
    for period in range(1, min(LONGEST_PERIOD, tokens.shape[1] // 2) + 1):
        same = (tokens[:, period:] == tokens[:, :-period])[:, ::-1]
        count = np.where(same.all(axis=1), same.shape[1], same.argmin(axis=1))
        longest = np.maximum(longest, np.where(count >= period, count + period, 0))
    return longest


def ends(history: NDArray[np.int64], step: int, count: int) -> NDArray[np.int64]:
    """The last tokens of each sentence's best path. history: (2, B, steps, K), tokens and parents; (B, count)."""
    rows, beam = np.arange(history.shape[1]), np.zeros(history.shape[1], dtype=np.int64)
    last = np.empty((len(rows), count), dtype=np.int64)
    for back in range(count):
        last[:, count - 1 - back] = history[0, rows, step - back, beam]
        beam = history[1, rows, step - back, beam]
    return last
