"""Search loops compiled with numba, run on several threads.

The threads are Python's: numba's own may not be used by several callers at once, and a loop without the interpreter's
lock needs no more.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.jit import jit

compiled = jit(fastmath={"nnan", "nsz", "arcp", "contract", "reassoc"})


def share_out(loop: Callable[..., Any], sizes: NDArray[np.int64], least: int, *arguments: Any) -> None:
    """Call loop(first, last, *arguments) for all items, in parts of about the same size, on as many threads as torch's.

    sizes: (N,), how much work each item is; least: how much of it is worth a thread
    """
    ends = sizes.cumsum()
    whole = int(ends[-1]) if len(ends) else 0
    parts = max(1, min(torch.get_num_threads(), whole // least))
    inner = np.searchsorted(ends - sizes // 2, whole * np.arange(1, parts) // parts)  # an item is where its middle is
    *others, own = pairwise(np.unique([0, *inner, len(sizes)]).tolist() if len(sizes) else (0, 0))
    waiting = [_threads().submit(loop, first, last, *arguments) for first, last in others]
    loop(*own, *arguments)
    for part in waiting:
        part.result()


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads that wait for their part."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="knnmt-loops")
