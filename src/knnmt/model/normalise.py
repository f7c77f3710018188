"""log Σ exp of logits on a CPU, compiled with numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, largest, share_evenly
from knnmt.model.kernels import exponentials

Floats = NDArray[np.float32]

CHUNK = 1024  # entries of the vocabulary whose exponentials are summed at once, in the cache
WORTH = 1 << 17  # entries of the vocabulary that are worth a thread


def normalise(logits: Tensor) -> Tensor:
    """log Σ exp of each row. (B, K, V) to (B, K)."""
    found = logits.new_empty(logits.shape[:2])
    rows = logits.view(-1, logits.size(2))
    share_evenly(_normalise, len(rows), rows.size(1), WORTH, rows.numpy(), found.view(-1).numpy())
    return found


@compiled
def _normalise(first: int, last: int, rows: Floats, found: Floats) -> None:
    chunk, powers = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.int32)
    for row in range(first, last):
        found[row] = normaliser_of(rows[row], chunk, powers)


@compiled
def normaliser_of(logits: Floats, chunk: Floats, powers: Any) -> Any:
    """log Σ exp of a row (V,). chunk, powers: (CHUNK,) float32 and int32, to compute with."""
    most, whole = np.float32(-np.inf), np.float32(0.0)
    for start in range(0, len(logits), CHUNK):
        count = min(CHUNK, len(logits) - start)
        some = chunk[:count]
        some[:] = logits[start : start + count]
        highest = largest(some)
        if highest > most:
            whole *= np.exp(most - highest)
            most = highest
        if highest > -np.inf:
            whole += exponentials(some, most, powers[:count])
    return most + np.log(whole)
