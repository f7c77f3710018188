"""Search among float16 rows, and rows in bytes, on a CPU, compiled with numba.

A search compares few queries with many rows, so its time is that of reading the rows. torch would read 32-bit copies of
them, padded to the longest of a batch. Product-quantized rows are searched by torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.loops import HALF_BITS, HALF_SHIFT, compiled, element, fetch, inlined, last_begun, prefetch, put, share_out
from knnmt.search.compiled_entries import gather_entries
from knnmt.search.compiled_matches import match
from knnmt.search.compiled_mix import mix
from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.entries import PartLinks
from knnmt.search.matches import Asked, Index, Limits, Matches
from knnmt.search.metric import Decay
from knnmt.search.nearest import BySentence, unpack
from knnmt.search.products import TOGETHER, multiply
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Ranges, Search, grouped
from knnmt.search.softmax import Seen

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 1 << 17  # numbers of rows that stay in the cache while all queries are compared with them
NOTHING = 0x7F800000 << 32  # an infinite distance and the number 0, packed
AHEAD = 4  # blocks whose rows are fetched ahead
WORTH = 1 << 13  # row comparisons that are worth a thread

# A float16 is read as 2^-112 times itself (`loops.HALF_BITS`). Queries are scaled up to make up for that; the rest is
# applied to the product, since 2^112 might overflow a float32.
LARGER, REST, ONE, UP = 2.0**100, np.float32(2.0**12), np.float32(1.0), np.float32(2.0**112)
UNKNOWN = -1.0  # a squared norm that is computed when its row is first compared


class CompiledSearch(Search):
    """Search by compiled loops, and by torch where rows are product-quantized."""

    def table(self, keys: Keys[Rows], numbers: Tensor) -> Chosen:
        """The rows `numbers` (B, N) of keys, none where -1."""
        return HalfTable(self.buffers, keys, numbers) if keys.plain else super().table(keys, numbers)

    def softmax(self, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> CompiledSoftmax:
        """The rows of keys that sentences see: all of them get a share."""
        return CompiledSoftmax(self.buffers, keys, seen, decay)

    def match(self, index: Index, asked: Asked, limits: Limits) -> Matches:
        """The stored tokens that match those of sentences."""
        return match(index, asked, limits)

    def entries(
        self, parts: Sequence[PartLinks], hidden: Tensor | None, sentence: Tensor, matches: Matches
    ) -> tuple[Tensor, Tensor]:
        """The entries that sentences see."""
        return gather_entries(parts, hidden, sentence, matches)

    def mix(self, logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
        """Mix p_kNN into logits in place."""
        if logits.dtype != torch.float32:  # of models that torch runs in other precisions
            return super().mix(logits, normaliser, tokens, log_p, weight)
        return mix(logits, normaliser, tokens, log_p, weight)

    def norms(self, values: Tensor) -> Tensor:
        """None are known yet: a search computes that of a row when it first reads it."""
        return torch.full((len(values),), UNKNOWN)

    def take(self, blocks: Sequence[Tensor], starts: Sequence[int], numbers: Tensor) -> Tensor:
        """The rows `numbers` (...) of blocks. (..., *row)."""
        if len(blocks) == 1:
            return blocks[0][numbers]
        found = blocks[0].new_empty((*numbers.shape, *blocks[0].shape[1:]))
        take(blocks, starts, numbers.flatten(), found)
        return found

    def nearest(
        self, keys: Keys[Rows], ranges: Ranges | None, queries: Tensor, count: int, members: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Squared distances and numbers of the nearest rows; those of many blocks by one loop."""
        if ranges is None or members is not None or not keys.plain:
            return super().nearest(keys, ranges, queries, count, members)
        squared, numbers = self._grouped(keys, *ranges, queries, count, None)
        return squared, numbers.masked_fill(squared == FAR, -1)

    def _nearest(
        self, rows: Rows, starts: Tensor, stops: Tensor, queries: Tensor, count: int, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if rows.codebooks is not None:
            return super()._nearest(rows, starts, stops, queries, count, members)
        return self._grouped(Keys([rows]), starts[:, None], stops[:, None], queries, count, members)

    def _grouped(
        self, keys: Keys[Rows], starts: Tensor, stops: Tensor, queries: Tensor, count: int, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Search the ranges (Q, blocks) of queries, those with the same ranges together."""
        order, ends = grouped(starts, stops)
        first = torch.tensor([0, *ends[:-1]], dtype=torch.int64)
        asking = torch.tensor(ends, dtype=torch.int64) - first
        asked = order[first] if len(order) else order
        if len(order) == len(queries):  # in the order in which they are read
            queries, which = queries[order], None
        else:  # each has several rows of ranges
            which = order // (len(order) // len(queries))
        found = search(keys, starts[asked], stops[asked], queries, asking[: len(asked)], count, members, which)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return found[0][back], found[1][back]

    def _scan(self, rows: Rows, start: int, stop: int, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if not rows.plain:
            return super()._scan(rows, start, stop, queries, count)
        bounds = torch.tensor([[start]]), torch.tensor([[stop]])
        return search(Keys([rows]), *bounds, queries, torch.tensor([len(queries)]), count)


class HalfTable(BySentence):
    """Rows that queries are compared with at every step, as `Table`: `numbers` (B, N) of some keys, none where -1."""

    by_sentence = "starts", "stops"

    def __init__(self, buffers: Buffers, keys: Keys[Rows], numbers: Tensor) -> None:
        self.count, width, missing = numbers.size(1), keys.width, numbers < 0
        places = torch.arange(self.count)
        lasts = torch.where(missing, 0, places + 1).amax(dim=1) if self.count else numbers.new_zeros(len(numbers))
        there = places < lasts[:, None]
        chosen = numbers[there].clamp_min_(0)
        memory, _ = buffers.lend(self, -(-len(chosen) * width // 2))
        values = memory.view(torch.float16)[: len(chosen) * width].view(-1, width)
        norms = torch.empty(len(chosen))
        take([block.values for block in keys.blocks], keys.starts, chosen, values)
        take([block.norms for block in keys.blocks], keys.starts, chosen, norms)
        self.rows = Rows(values, norms.masked_fill_(missing[there], FAR))
        self.stops = lasts.cumsum(0)
        self.starts = self.stops - lasts

    def nearest(self, queries: Tensor, count: int, within: Ranges | None = None) -> tuple[Tensor, Tensor]:
        """Squared distances and places of the rows nearest to queries (B, Q, d). Both (B, Q, up to count).

        within: (B, Q) each, the first place a query may find, and the one behind the last
        """
        count = min(count, self.count)
        shape = (*queries.shape[:2], count)
        starts, stops, asking = self.starts, self.stops, torch.full_like(self.starts, queries.size(1))
        if within is not None:
            starts, stops = (torch.minimum(starts[:, None] + bound, stops[:, None]).flatten() for bound in within)
            asking = torch.ones_like(starts)
        groups = starts[:, None], stops[:, None]
        squared, rows = search(Keys([self.rows]), *groups, queries.flatten(0, 1), asking, count)
        return squared.view(shape), (rows.view(shape) - self.starts[:, None, None]).clamp_min_(0)


def take(blocks: Sequence[Tensor], starts: Sequence[int], numbers: Tensor, out: Tensor) -> None:
    """Copy the rows `numbers` (n,) of blocks, which are numbered consecutively, to `out`."""
    if len(blocks) == 1:
        torch.index_select(blocks[0], 0, numbers, out=out)
        return
    if not len(numbers):
        return
    low, high = torch.aminmax(numbers)
    if low < 0 or high >= starts[-1]:
        raise IndexError(f"rows {int(low)} to {int(high)} asked for, of {starts[-1]}")
    addresses, size = np.array([block.data_ptr() for block in blocks]), out.nbytes // len(numbers)
    _take(addresses, np.array(starts), size, numbers.numpy(), out.view(-1).view(torch.uint8).numpy())


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
            norm = _norm(row, width)
            put(norms, at_row, norm)
        for query in range(count):
            squared = max(norm + own[which[begin + query]] + scale * scratch[0, query], np.float32(0.0))
            if squared < scratch[1, query]:
                _replace_farthest(found, begin + query, squared, number + place)
                scratch[1, query] = _distance(found[begin + query, 0])


@compiled
def _norm(row: int, width: int) -> Any:
    """The squared length of a float16 row, by its address."""
    total = np.float32(0.0)
    for at in range(width):
        x = np.int32((element(16, row, at) << np.int32(HALF_SHIFT)) & np.int32(HALF_BITS)).view(np.float32) * UP
        total += x * x
    return total


@compiled
def _take(addresses: Ints, starts: Ints, size: int, numbers: Ints, found: Any) -> None:
    """Copy rows of `size` bytes from blocks at these addresses, one after the other. starts: (P + 1,)."""
    for place in range(len(numbers)):
        number = numbers[place]
        block = last_begun(starts[:-1], number)
        row = addresses[block] + (number - starts[block]) * size
        for at in range(size):
            found[place * size + at] = element(8, row, at)


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
