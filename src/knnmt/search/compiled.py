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

from knnmt.loops import compiled, element, last_begun, prefetch, put, share_out
from knnmt.search.compiled_entries import gather_entries
from knnmt.search.compiled_matches import match
from knnmt.search.compiled_mix import mix
from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.matches import Asked, Index, Limits, Matches, PartLinks
from knnmt.search.nearest import Buffers, BySentence, unpack
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Ranges, Search, grouped

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TOGETHER = 5  # queries that a row is compared with when it is read: a usual number of beams
BLOCK = 1 << 17  # numbers of rows that stay in the cache while all queries are compared with them
NOTHING = 0x7F800000 << 32  # an infinite distance and the number 0, packed
AHEAD, LINE = 4, 64  # blocks whose rows are fetched ahead, and the bytes of a cache line
WORTH = 1 << 13  # row comparisons that are worth a thread

# A float16's bits, shifted into a float32 with the sign moved to the front, are the same number times 2^-112. Queries
# are scaled up to make up for that; the rest is applied to the product, since 2^112 might overflow a float32.
KEPT = np.int32(0x8FFFE000 - (1 << 32))
LARGER, REST, UP = 2.0**100, np.float32(2.0**12), np.float32(2.0**112)
UNKNOWN = -1.0  # a squared norm that is computed when its row is first compared


class CompiledSearch(Search):
    """Search by compiled loops, and by torch where rows are product-quantized."""

    def table(self, keys: Keys[Rows], numbers: Tensor) -> Chosen:
        """The rows `numbers` (B, N) of keys, none where -1."""
        return HalfTable(self.buffers, keys, numbers) if keys.plain else super().table(keys, numbers)

    def softmax(self, keys: Keys[ProjectedRows], numbers: Tensor, tokens: Tensor) -> CompiledSoftmax:
        """The rows `numbers` (B, N) of keys, none where -1, each with its token (B, N): all of them get a share."""
        return CompiledSoftmax(self.buffers, keys, numbers, tokens)

    def match(self, index: Index, asked: Asked, limits: Limits) -> Matches:
        """The stored tokens that match those of sentences."""
        return match(index, asked, limits)

    def entries(
        self, parts: Sequence[PartLinks], hidden: Tensor | None, sentence: Tensor, tokens: Tensor, segments: Tensor
    ) -> Tensor:
        """The entries that sentences see."""
        return gather_entries(parts, hidden, sentence, tokens, segments)

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
        given = starts[asked], stops[asked], queries[order], asking[: len(asked)]
        found = search(keys, *given, count, members)
        squared, numbers = (each[order.argsort()] for each in found)
        return squared, numbers

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
        memory = buffers.lend(self, (-(-len(chosen) * width // 2),)).view(torch.float16)
        values = memory[: len(chosen) * width].view(-1, width)
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
) -> tuple[Tensor, Tensor]:
    """Squared distances and numbers of the `count` rows of groups nearest to queries; ties by number.

    starts, stops: (G, blocks), the rows of each group in each block, or of the `members` of a single one; queries: (Q,
    d), the first asking[0] of which ask the first group, and so on. Both (Q, count), padded with FAR and 0 where a
    group has fewer. Where the groups are too few for all threads, each is searched in pieces, and what these find is
    merged.
    """
    rows = keys.blocks[0]
    sizes = (stops - starts).clamp_min(0).sum(dim=1) * -(-asking // TOGETHER)
    pieces = max(1, min(torch.get_num_threads(), int(sizes.sum()) // WORTH) // max(1, len(sizes)))
    lengths = -((starts - stops) // pieces)
    begins = starts + lengths * torch.arange(pieces)[:, None, None]
    begins, ends = (torch.minimum(bound, stops).flatten(0, 1) for bound in (begins, begins + lengths))
    scaled, own = queries * -2.0, queries.square().sum(dim=-1)
    if rows.steps is None:
        scaled = scaled * LARGER
    else:  # |q − (middle + step·row)|²: the middle is the same for all rows
        scaled, own = scaled * rows.steps[1], own + scaled @ rows.steps[0]
    scaled, own = scaled.repeat(pieces, 1), own.repeat(pieces)
    found = torch.full((pieces * len(queries), count), NOTHING)
    asked = asking.repeat(pieces)
    last = asked.cumsum(0)
    index = torch.empty(0, dtype=torch.int32) if members is None else members
    firsts = zip(keys.blocks, keys.starts, strict=False)
    places = np.array([(block.values.data_ptr(), block.norms.data_ptr(), first) for block, first in firsts])
    arrays = begins, ends, scaled, own, last - asked, last, found
    if count:
        share_out(
            _search, (sizes.repeat(pieces) // pieces).numpy(), WORTH, places, rows.values.element_size(),
            index.numpy(), *(each.numpy() for each in arrays),
        )  # fmt: skip
    found = found.view(pieces, len(queries), count).transpose(0, 1).flatten(1)
    return unpack(found.sort(dim=1).values[:, :count])


@compiled
def _search(
    first: int, last: int, blocks: Ints, size: int, members: Ints, starts: Ints, stops: Ints, queries: Floats,
    own: Floats, begins: Ints, ends: Ints, found: Ints,
) -> None:  # fmt: skip
    """Fill in what the queries of groups first to last find: (Q, count), heaps of packed distances and numbers.

    blocks: (P, 3), the addresses of their rows and norms, and their first numbers; size: the bytes of a row's number
    """
    together = max(1, BLOCK // queries.shape[1])
    scratch = np.empty((2, TOGETHER), np.float32)
    for group in range(first, last):
        for block in range(len(blocks)):
            if block + AHEAD < len(blocks):
                _fetch(blocks[block + AHEAD], starts[group, block + AHEAD], size * queries.shape[1])
            for start in range(starts[group, block], stops[group, block], together):
                stop = min(start + together, stops[group, block])
                for begin in range(begins[group], ends[group], TOGETHER):
                    end = min(begin + TOGETHER, ends[group])
                    _compare(
                        blocks[block], size, members, start, stop, queries[begin:end], own[begin:end],
                        found[begin:end], scratch,
                    )  # fmt: skip


@compiled
def _fetch(block: Ints, row: int, size: int) -> None:
    """Have a row of `size` bytes, and its norm, on the way to the cache: rows of many blocks lie far apart."""
    for at in range(0, size, LINE):
        prefetch(block[0] + row * size + at)
    prefetch(block[1] + 4 * row)


@compiled
def _compare(
    block: Ints, size: int, members: Ints, start: int, stop: int, queries: Floats, own: Floats, found: Ints,
    scratch: Floats,
) -> None:  # fmt: skip
    """Put the rows start to stop that are among the nearest of some queries into these queries' heaps."""
    last, width = len(found) - 1, queries.shape[1]
    a, b, c = queries[0], queries[min(1, last)], queries[min(2, last)]
    d, e = queries[min(3, last)], queries[min(4, last)]
    products, farthest = scratch[0], scratch[1]
    for query in range(len(found)):
        farthest[query] = _distance(found[query, 0])
    for number in range(start, stop):
        at_row = np.int64(members[number]) if len(members) else number
        row = block[0] + at_row * width * size
        if size == 1:
            s, t, u, v, w = _multiply_bytes(row, a, b, c, d, e)
        else:
            s, t, u, v, w = _multiply_halves(row, a, b, c, d, e)
        products[0], products[1], products[2], products[3], products[4] = s, t, u, v, w
        norm = element(0, block[1], at_row)
        if norm < np.float32(0.0):
            norm = _norm(row, width)
            put(block[1], at_row, norm)
        for query in range(len(found)):
            squared = max(norm + own[query] + products[query], np.float32(0.0))
            if squared < farthest[query]:
                _replace_farthest(found[query], squared, block[2] + number)
                farthest[query] = _distance(found[query, 0])


@compiled
def _norm(row: int, width: int) -> Any:
    """The squared length of a float16 row, by its address."""
    total = np.float32(0.0)
    for at in range(width):
        x = np.int32((element(16, row, at) << np.int32(13)) & KEPT).view(np.float32) * UP
        total += x * x
    return total


@compiled
def _multiply_halves(row: int, a: Floats, b: Floats, c: Floats, d: Floats, e: Floats) -> Any:
    """The products of a float16 row, by its address, with five queries."""
    s = t = u = v = w = np.float32(0.0)
    for at in range(len(a)):
        x = np.int32((element(16, row, at) << np.int32(13)) & KEPT).view(np.float32)
        s += x * a[at]
        t += x * b[at]
        u += x * c[at]
        v += x * d[at]
        w += x * e[at]
    return REST * s, REST * t, REST * u, REST * v, REST * w


@compiled
def _multiply_bytes(row: int, a: Floats, b: Floats, c: Floats, d: Floats, e: Floats) -> Any:
    """The products of a row in bytes, by its address, with five queries."""
    s = t = u = v = w = np.float32(0.0)
    for at in range(len(a)):
        x = np.float32(element(8, row, at))
        s += x * a[at]
        t += x * b[at]
        u += x * c[at]
        v += x * d[at]
        w += x * e[at]
    return s, t, u, v, w


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
def _replace_farthest(heap: Ints, squared: Any, number: int) -> None:
    """Put a distance and a number into a heap whose first item is the largest, in place of that."""
    item = np.int64(np.float32(squared).view(np.int32)) << 32 | number
    at, child = 0, 1
    while child < len(heap):
        if child + 1 < len(heap) and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= item:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item


@compiled
def _distance(packed: int) -> Any:
    """The distance in a packed item."""
    return np.int32(packed >> 32).view(np.float32)
