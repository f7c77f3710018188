"""Search on a CPU by loops compiled with numba, each in a module of its own; product-quantized rows are searched by
torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.loops import compiled, element, last_begun
from knnmt.search.compiled_entries import gather_entries
from knnmt.search.compiled_matches import match
from knnmt.search.compiled_mix import mix
from knnmt.search.compiled_rows import search
from knnmt.search.compiled_scan import fits, rough, scan
from knnmt.search.compiled_softmax import CompiledSoftmax
from knnmt.search.entries import PartLinks
from knnmt.search.matches import Asked, Index, Limits, Matches
from knnmt.search.metric import Decay
from knnmt.search.nearest import BySentence
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Ranges, Search, grouped
from knnmt.search.softmax import Seen

Ints = NDArray[np.int64]

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
        if stop - start == len(rows) and fits(rows.values):
            return scan(rows, self._in_bytes(rows, rough), queries, count)
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


@compiled
def _take(addresses: Ints, starts: Ints, size: int, numbers: Ints, found: Any) -> None:
    """Copy rows of `size` bytes from blocks at these addresses, one after the other. starts: (P + 1,)."""
    for place in range(len(numbers)):
        number = numbers[place]
        block = last_begun(starts[:-1], number)
        row = addresses[block] + (number - starts[block]) * size
        for at in range(size):
            found[place * size + at] = element(8, row, at)
