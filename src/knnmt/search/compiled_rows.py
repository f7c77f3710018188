"""Queries compared with float16 rows, and rows in bytes, in loops compiled with numba: the nearest rows of groups.

A search compares few queries with many rows, so its time is that of reading the rows. torch would read 32-bit copies of
them, padded to the longest of a batch.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import HALF_BITS, HALF_SHIFT, compiled, element, fetch, inlined, prefetch, put, share_out
from knnmt.search.nearest import unpack
from knnmt.search.products import TOGETHER, multiply
from knnmt.search.rows import Keys, Rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 1 << 17  # numbers of rows that stay in the cache while all queries are compared with them
NOTHING = 0x7F800000 << 32  # an infinite distance and the number 0, packed
AHEAD = 4  # blocks whose rows are fetched ahead
WORTH = 1 << 13  # row comparisons that are worth a thread

# A float16 is read as 2^-112 times itself (`loops.HALF_BITS`). Queries are scaled up to make up for that; the rest is
# applied to the product, since 2^112 might overflow a float32.
LARGER, REST, ONE, UP = 2.0**100, np.float32(2.0**12), np.float32(1.0), np.float32(2.0**112)


def search(
    keys: Keys[Rows],
    starts: Tensor,
    stops: Tensor,
    queries: Tensor,
    asking: Tensor,
    count: int,
    members: Tensor | None = None,
    which: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Squared distances and numbers of the `count` rows of groups nearest to queries (Q, d); ties by number.

    starts, stops: (G, blocks), the rows of each group in each block, or of the `members` of a single one; which: (A,),
    the queries that ask, None for all in their order; the first asking[0] of them ask the first group, and so on. Both
    (A, count), padded with FAR and 0 where a group has fewer. Where the groups are too few for all threads, each is
    searched in pieces, and what these find is merged.
    """
    which = torch.arange(len(queries)) if which is None else which
    rows = keys.blocks[0]
    sizes = (stops - starts).clamp_min(0).sum(dim=1) * -(-asking // TOGETHER)
    pieces = max(1, min(torch.get_num_threads(), int(sizes.sum()) // WORTH) // max(1, len(sizes)))
    lengths = -((starts - stops) // pieces)
    begins = starts + lengths * torch.arange(pieces)[:, None, None]
    begins, ends = (
        torch.minimum(bound, stops).flatten(0, 1).T.contiguous() for bound in (begins, begins + lengths)
    )  # (blocks, G)
    own = queries.square().sum(dim=-1)
    if rows.steps is None:
        scaled = queries * (-2.0 * LARGER)
    else:  # |q − (middle + step·row)|²: the middle is the same for all rows
        scaled = queries * -2.0
        scaled, own = scaled * rows.steps[1], own + scaled @ rows.steps[0]
    found = torch.full((pieces * len(which), count), NOTHING)
    asked = asking.repeat(pieces)
    last = asked.cumsum(0)
    index = torch.empty(0, dtype=torch.int32) if members is None else members
    firsts = zip(keys.blocks, keys.starts, strict=False)
    places = np.array([(block.values.data_ptr(), block.norms.data_ptr(), first) for block, first in firsts])
    arrays = begins, ends, scaled, own, which.repeat(pieces), last - asked, last, found
    if count:
        share_out(
            _search, (sizes.repeat(pieces) // pieces).numpy(), WORTH, places, rows.values.element_size(),
            index.numpy(), *(each.numpy() for each in arrays),
        )  # fmt: skip
    found = found.view(pieces, len(which), count).transpose(0, 1).flatten(1)
    return unpack(found.sort(dim=1).values[:, :count])


@compiled
def _search(
    first: int, last: int, blocks: Ints, size: int, members: Ints, starts: Ints, stops: Ints, queries: Floats,
    own: Floats, which: Ints, begins: Ints, ends: Ints, found: Ints,
) -> None:  # fmt: skip
    """Fill in what those who ask groups first to last find: (A, count), heaps of packed distances and numbers.

    blocks: (P, 3), the addresses of their rows and norms, and their first numbers; size: the bytes of a row's number.
    One block after the other, since rows of one lie nearer to each other: they are in fewer pages.
    """
    width = queries.shape[1]
    together = max(1, BLOCK // width)
    scratch = np.empty((2, TOGETHER), np.float32)
    for block in range(len(blocks)):
        values, norms, number = blocks[block]
        for group in range(first, last):
            if group + AHEAD < last:
                ahead = starts[block, group + AHEAD]  # rows of many blocks lie far apart
                fetch(values + ahead * size * width, size * width)
                prefetch(norms + 4 * ahead)
            for start in range(starts[block, group], stops[block, group], together):
                stop = min(start + together, stops[block, group])
                for begin in range(begins[group], ends[group], TOGETHER):
                    end = min(begin + TOGETHER, ends[group])
                    _compare(
                        values, norms, number, size, members, start, stop, queries, own, which, begin, end, found,
                        scratch,
                    )  # fmt: skip


@inlined
def _compare(
    values: int, norms: int, number: int, size: int, members: Ints, start: int, stop: int, queries: Floats,
    own: Floats, which: Ints, begin: int, end: int, found: Ints, scratch: Floats,
) -> None:  # fmt: skip
    """Put the rows start to stop that are among the nearest of those who ask, begin to end, into their heaps.

    values, norms: addresses; number: that of the first row. Everything is read by its address or number: a view of an
    array, whose users are counted, takes longer than a row, and there may be one row only.
    """
    count, width, base = end - begin, queries.shape[1], np.int64(queries.ctypes.data)
    a = base + 4 * width * which[begin]
    b, c = base + 4 * width * which[min(begin + 1, end - 1)], base + 4 * width * which[min(begin + 2, end - 1)]
    d, e = base + 4 * width * which[min(begin + 3, end - 1)], base + 4 * width * which[min(begin + 4, end - 1)]
    scale = REST if size == 2 else ONE
    products: Any = np.int64(scratch.ctypes.data)
    for query in range(count):
        scratch[1, query] = _distance(found[begin + query, 0])
    for place in range(start, stop):
        at_row = np.int64(members[place]) if len(members) else place
        row = values + at_row * width * size
        multiply(size, count, row, width, a, b, c, d, e, products)
        norm = element(0, norms, at_row)
        if norm < np.float32(0.0):
            norm = squared_norm(row, width)
            put(norms, at_row, norm)
        for query in range(count):
            squared = max(norm + own[which[begin + query]] + scale * scratch[0, query], np.float32(0.0))
            if squared < scratch[1, query]:
                _replace_farthest(found, begin + query, squared, number + place)
                scratch[1, query] = _distance(found[begin + query, 0])


@compiled
def squared_norm(row: int, width: int) -> Any:
    """The squared length of a float16 row, by its address."""
    total = np.float32(0.0)
    for at in range(width):
        x = np.int32((element(16, row, at) << np.int32(HALF_SHIFT)) & np.int32(HALF_BITS)).view(np.float32) * UP
        total += x * x
    return total


@compiled
def _replace_farthest(heaps: Ints, heap: int, squared: Any, number: int) -> None:
    """Put a distance and a number into a heap whose first item is the largest, in place of that."""
    item = np.int64(np.float32(squared).view(np.int32)) << 32 | number
    at, child, size = 0, 1, heaps.shape[1]
    while child < size:
        if child + 1 < size and heaps[heap, child + 1] > heaps[heap, child]:
            child += 1
        if heaps[heap, child] <= item:
            break
        heaps[heap, at] = heaps[heap, child]
        at, child = child, 2 * child + 1
    heaps[heap, at] = item


@compiled
def _distance(packed: int) -> Any:
    """The distance in a packed item."""
    return np.int32(packed >> 32).view(np.float32)
