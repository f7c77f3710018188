"""Detection of repetition loops: a model that repeats the same few tokens until the length limit.

A run is a stretch of tokens with a fixed period, at least two periods long.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 16  # in tokens
SPARE = 48  # tokens that a run may be longer than the source's: three of the longest periods
EVERY = 16  # steps between two checks


def longest_run(tokens: Sequence[int]) -> int:
    """The length of the longest run."""
    ids, longest = np.asarray(tokens), 0
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 2) + 1):
        breaks = np.flatnonzero(np.concatenate(([True], ids[period:] != ids[:-period], [True])))
        same = int(np.diff(breaks).max()) - 1
        longest = max(longest, same + period if same >= period else 0)
    return longest


def runs_at_end(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The length of the longest run at the end of each row. (B, N) to (B,)."""
    longest = np.zeros(len(tokens), dtype=np.int64)
    for period in range(1, min(LONGEST_PERIOD, tokens.shape[1] // 2) + 1):
        same = (tokens[:, period:] == tokens[:, :-period])[:, ::-1]
        count = np.where(same.all(axis=1), same.shape[1], same.argmin(axis=1))
        longest = np.maximum(longest, np.where(count >= period, count + period, 0))
    return longest


def ends(history: NDArray[np.int64], step: int, count: int) -> NDArray[np.int64]:
    """The last tokens of each best beam, (B, count). history: (2, B, steps, K), tokens and parents."""
    rows, beam = np.arange(history.shape[1]), np.zeros(history.shape[1], dtype=np.int64)
    last = np.empty((len(rows), count), dtype=np.int64)
    for back in range(count):
        last[:, count - 1 - back] = history[0, rows, step - back, beam]
        beam = history[1, rows, step - back, beam]
    return last
