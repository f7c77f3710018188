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

from knnmt.loops import compiled, share_out
from knnmt.search.compiled_entries import gather_entries
from knnmt.search.compiled_matches import match
from knnmt.search.compiled_mix import mix
from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.matches import Asked, Index, Limits, Matches, PartLinks
from knnmt.search.nearest import Buffers, BySentence, unpack
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Ranges, Search, grouped

Floats = NDArray[np.float32]
Values = NDArray[np.int16] | NDArray[np.int8]  # float16 by their bits, or bytes
Ints = NDArray[np.int64]

TOGETHER = 5  # queries that a row is compared with when it is read: a usual number of beams
BLOCK = 1 << 17  # numbers of rows that stay in the cache while all queries are compared with them
NOTHING = 0x7F800000 << 32  # an infinite distance and the number 0, packed
WORTH = 1 << 13  # row comparisons that are worth a thread

# A float16's bits, shifted into a float32 with the sign moved to the front, are the same number times 2^-112. Queries
# are scaled up to make up for that; the rest is applied to the product, since 2^112 might overflow a float32.
KEPT = np.int32(0x8FFFE000 - (1 << 32))
LARGER, REST = 2.0**100, np.float32(2.0**12)


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

    def _nearest(
        self, rows: Rows, starts: Tensor, stops: Tensor, queries: Tensor, count: int, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if rows.codebooks is not None:
            return super()._nearest(rows, starts, stops, queries, count, members)
        order, ends = grouped(starts, stops)
        first = torch.tensor([0, *ends[:-1]], dtype=torch.int64)
        asking = torch.tensor(ends, dtype=torch.int64) - first
        asked = order[first] if len(order) else order
        found = search(rows, starts[asked], stops[asked], queries[order], asking[: len(asked)], count, members)
        squared, numbers = (each[order.argsort()] for each in found)
        return squared, numbers

    def _scan(self, rows: Rows, start: int, stop: int, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        if not rows.plain:
            return super()._scan(rows, start, stop, queries, count)
        bounds = torch.tensor([start]), torch.tensor([stop])
        return search(rows, *bounds, queries, torch.tensor([len(queries)]), count)


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
        keys.copy_values(chosen, values)
        self.rows = Rows(values, keys.squared(chosen, values).masked_fill(missing[there], FAR))
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
        squared, rows = search(self.rows, starts, stops, queries.flatten(0, 1), asking, count)
        return squared.view(shape), (rows.view(shape) - self.starts[:, None, None]).clamp_min_(0)


def search(
    rows: Rows,
    starts: Tensor,
    stops: Tensor,
    queries: Tensor,
    asking: Tensor,
    count: int,
    members: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Squared distances and numbers of the `count` rows of groups nearest to queries; ties by number.

    starts, stops: (G,), the rows of each group, or of `members`; queries: (Q, d), the first asking[0] of which ask the
    first group, and so on. Both (Q, count), padded with FAR and 0 where a group has fewer. Where the groups are too few
    for all threads, each is searched in pieces, and what these find is merged.
    """
    sizes = (stops - starts).clamp_min(0) * -(-asking // TOGETHER)
    pieces = max(1, min(torch.get_num_threads(), int(sizes.sum()) // WORTH) // max(1, len(sizes)))
    lengths = -((starts - stops) // pieces)
    begins = starts + lengths * torch.arange(pieces)[:, None]
    begins, ends = (torch.minimum(bound, stops).flatten() for bound in (begins, begins + lengths))
    values, scaled, own = rows.values, queries * -2.0, queries.square().sum(dim=-1)
    if rows.steps is None:
        values, scaled = values.view(torch.int16), scaled * LARGER
    else:  # |q − (middle + step·row)|²: the middle is the same for all rows
        scaled, own = scaled * rows.steps[1], own + scaled @ rows.steps[0]
    scaled, own = scaled.repeat(pieces, 1), own.repeat(pieces)
    found = torch.full((pieces * len(queries), count), NOTHING)
    asked = asking.repeat(pieces)
    last = asked.cumsum(0)
    index = torch.empty(0, dtype=torch.int32) if members is None else members
    arrays = values, rows.norms, index, begins, ends, scaled, own, last - asked, last, found
    if count:
        share_out(_search, (sizes.repeat(pieces) // pieces).numpy(), WORTH, *(each.numpy() for each in arrays))
    found = found.view(pieces, len(queries), count).transpose(0, 1).flatten(1)
    return unpack(found.sort(dim=1).values[:, :count])


@compiled
def _search(
    first: int, last: int, rows: Values, norms: Floats, members: Ints, starts: Ints, stops: Ints,
    queries: Floats, own: Floats, begins: Ints, ends: Ints, found: Ints,
) -> None:  # fmt: skip
    """Fill in what the queries of groups first to last find: (Q, count), heaps of packed distances and numbers."""
    block = max(1, BLOCK // rows.shape[1])
    together = np.zeros((TOGETHER, queries.shape[1]), np.float32)
    for group in range(first, last):
        for start in range(starts[group], stops[group], block):
            stop = min(start + block, stops[group])
            for begin in range(begins[group], ends[group], TOGETHER):
                end = min(begin + TOGETHER, ends[group])
                together[: end - begin] = queries[begin:end]
                _compare(rows, norms, members, start, stop, together, own[begin:end], found[begin:end])


@compiled
def _compare(
    rows: Values, norms: Floats, members: Ints, start: int, stop: int, queries: Floats, own: Floats, found: Ints
) -> None:  # fmt: skip
    """Put the rows start to stop that are among the nearest of some queries into these queries' heaps."""
    a, b, c, d, e = queries[0], queries[1], queries[2], queries[3], queries[4]
    products, farthest = np.empty(TOGETHER, np.float32), np.empty(TOGETHER, np.float32)
    for query in range(len(found)):
        farthest[query] = _distance(found[query, 0])
    for number in range(start, stop):
        at_row = members[number] if len(members) else number
        row = rows[at_row]
        if rows.itemsize == 1:
            s, t, u, v, w = _multiply_bytes(row, a, b, c, d, e)
        else:
            s, t, u, v, w = _multiply_halves(row, a, b, c, d, e)
        products[0], products[1], products[2], products[3], products[4] = s, t, u, v, w
        for query in range(len(found)):
            squared = max(norms[at_row] + own[query] + products[query], np.float32(0.0))
            if squared < farthest[query]:
                _replace_farthest(found[query], squared, number)
                farthest[query] = _distance(found[query, 0])


@compiled
def _multiply_halves(row: Values, a: Floats, b: Floats, c: Floats, d: Floats, e: Floats) -> Any:
    """The products of a float16 row with five queries."""
    s = t = u = v = w = np.float32(0.0)
    for at in range(len(row)):
        x = np.int32((np.int32(row[at]) << np.int32(13)) & KEPT).view(np.float32)
        s += x * a[at]
        t += x * b[at]
        u += x * c[at]
        v += x * d[at]
        w += x * e[at]
    return REST * s, REST * t, REST * u, REST * v, REST * w


@compiled
def _multiply_bytes(row: Values, a: Floats, b: Floats, c: Floats, d: Floats, e: Floats) -> Any:
    """The products of a row in bytes with five queries."""
    s = t = u = v = w = np.float32(0.0)
    for at in range(len(row)):
        x = np.float32(row[at])
        s += x * a[at]
        t += x * b[at]
        u += x * c[at]
        v += x * d[at]
        w += x * e[at]
    return s, t, u, v, w


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
