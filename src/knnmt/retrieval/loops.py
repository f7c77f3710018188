"""How loops are compiled for a CPU, and shared out among its threads.

The threads are Python's: numba's own may not be used by several callers at once, and a loop without the interpreter's
lock needs no more.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

compiled: Callable[..., Any] = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz", "arcp", "contract", "reassoc"}
)


def share_out(loop: Callable[..., Any], sizes: NDArray[np.int64], least: int, *arguments: Any) -> None:
    """Call loop(first, last, *arguments) for all items, in parts of about the same size, on as many threads as torch's.

    sizes: (N,), how much work each item is; least: how much of it is worth a thread
    """
    ends = sizes.cumsum()
    whole = int(ends[-1]) if len(ends) else 0
    parts = max(1, min(torch.get_num_threads(), whole // least))
    bounds = [0, *np.searchsorted(ends, whole * np.arange(1, parts) // parts, side="right").tolist(), len(sizes)]
    others = [
        _pool(os.getpid()).submit(loop, first, last, *arguments) for first, last in pairwise(bounds[1:]) if first < last
    ]
    loop(bounds[0], bounds[1], *arguments)
    for part in others:
        part.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that wait for their part; those of another process are not there after a fork."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="knnmt-loops")
