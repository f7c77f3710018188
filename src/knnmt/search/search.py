"""The one search that every system uses: the nearest rows of ranges, and tables of chosen rows.

Two backends do it: torch (here), and loops compiled with numba on a CPU (`compiled`). `knnmt.search.backend` chooses,
once, where a store's arrays are put on a device; nothing else asks what device it is on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from knnmt.buffers import Buffers
from knnmt.search.entries import PartLinks, gather_entries
from knnmt.search.matches import Asked, Index, Limits, Matches, match
from knnmt.search.metric import Decay
from knnmt.search.mix import Falling, Scores, merge, mix
from knnmt.search.nearest import Table, least, pack, runs, unpack
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows, gather
from knnmt.search.softmax import Seen, Softmax
from knnmt.settings import Metric

MEASURED = 1 << 12  # rows whose norms are computed at a time
GATHERED = 1 << 18  # rows copied at a time to be compared
TOGETHER = 32  # queries of one range that are compared with it at a time, where several ranges are
COMPARED = 1 << 26  # pairs of queries and rows compared at a time when all rows are scanned
STRETCHES = 1 << 14, 1 << 20  # rows scanned at a time, at least and at most
T = TypeVar("T")
Ranges = tuple[Tensor, Tensor]
"""The first row that each query may find in each block, and the one behind the last. Both (Q, blocks)."""


class Chosen(Protocol):
    """Rows chosen for a batch of sentences, to be compared with queries at every step."""

    count: int

    def nearest(self, queries: Tensor, count: int, within: Ranges | None = None) -> tuple[Tensor, Tensor]:
        """Squared distances and places of the rows nearest to queries (B, K, d). Both (B, K, up to count)."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        ...


class Search:
    """Search by torch."""

    scanned = 0  # comparisons of the queries of one range from which they are made by themselves
    gathered = GATHERED

    def __init__(self, device: torch.device) -> None:
        self.device, self.buffers = device, Buffers(device)
        self._rough: Any = WeakIdKeyDictionary()  # rows in bytes, of those that were scanned

    def make(self, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None) -> Table:
        """Rows to compare with: `numbers` (..., N) of keys, none where `missing`, or a slice of a single block."""
        return Table(self.buffers, keys, numbers, missing)

    def norms(self, values: Tensor) -> Tensor:
        """The squared lengths of rows (N, d), as a search needs them. (N,)."""
        norms = torch.empty(len(values), device=values.device)
        for some, into in zip(values.split(MEASURED), norms.split(MEASURED), strict=True):
            into.copy_(some.float().square().sum(-1))
        return norms

    def take(self, blocks: Sequence[Tensor], starts: Sequence[int], numbers: Tensor) -> Tensor:
        """The rows `numbers` (...) of blocks, as `gather` numbers them. (..., *row)."""
        return gather(numbers, starts, lambda block, rows: blocks[block][rows])

    def nearest(
        self, keys: Keys[Rows], ranges: Ranges | None, queries: Tensor, count: int, members: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Squared distances and numbers of the `count` rows nearest to queries (Q, d) in their ranges; None: of all.

        Both (Q, count), nearest first, ties by number; padded with FAR and -1. members: of each block, rows in another
        order: ranges are then ranges of these, and a row is found as often as it is there. A query may have several
        rows of ranges, as many as all others, one after the other: it is asked for each of them.
        """
        if ranges is not None and len(ranges[0]) > len(queries):
            queries = queries.repeat_interleave(len(ranges[0]) // len(queries), dim=0)
        found = []
        for block, (rows, first) in enumerate(zip(keys.blocks, keys.starts, strict=False)):
            of = None if members is None else members[block]
            if ranges is None:
                squared, numbers = self._scan(rows, 0, len(rows), queries, count)
            else:
                squared, numbers = self._nearest(rows, ranges[0][:, block], ranges[1][:, block], queries, count, of)
            if of is not None:
                numbers = of[numbers.masked_fill(squared == FAR, 0)].long()
            found.append((squared, numbers + first))
        squared, numbers = found[0]
        if len(found) > 1:
            squared, places = least(torch.cat([each for each, _ in found], dim=1), count)
            numbers = torch.cat([each for _, each in found], dim=1).gather(1, places)
        return squared, numbers.masked_fill(squared == FAR, -1)

    def choose(self, keys: Keys[Rows], ranges: Ranges, queries: Tensor, count: int) -> Tensor:
        """The numbers of the `count` rows nearest to queries (Q, d) in their ranges, -1 where there are fewer.

        (Q, count), in no certain order: a query whose ranges have no more rows than that needs no search.
        """
        starts, stops = ranges
        sizes = (stops - starts).clamp_min(0)
        total = sizes.sum(dim=1)
        found = torch.full((len(queries), count), -1, device=queries.device)
        few = (total <= count).nonzero().flatten()
        begin = starts + torch.tensor(keys.starts[:-1], device=starts.device)
        numbers = runs(begin[few].flatten(), sizes[few].flatten())
        found[few.repeat_interleave(total[few]), runs(torch.zeros_like(few), total[few])] = numbers
        many = (total > count).nonzero().flatten()
        if len(many):
            found[many] = self.nearest(keys, (starts[many], stops[many]), queries[many], count)[1]
        return found

    def table(self, keys: Keys[Rows], numbers: Tensor) -> Chosen:
        """The rows `numbers` (B, N) of keys, none where -1."""
        return self.make(keys, numbers.clamp_min(0), numbers < 0)

    def softmax(self, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> Softmax:
        """The rows of keys that sentences see: all of them get a share."""
        return Softmax(self.buffers, keys, seen, decay)

    def match(self, index: Index, asked: Asked, limits: Limits) -> Matches:
        """The stored tokens that match those of sentences."""
        return match(index, asked, limits)

    def merge(self, tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The softmax of scores by token, as `search.mix.merge` says."""
        return merge(tokens, scores)

    def entries(
        self, parts: Sequence[PartLinks], hidden: Tensor | None, sentence: Tensor, matches: Matches
    ) -> tuple[Tensor, Tensor]:
        """The entries that sentences see, as `search.entries` says."""
        return gather_entries(parts, hidden, sentence, matches)

    def mix(self, logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
        """Mix p_kNN into logits in place, as `search.mix.mix` says."""
        return mix(logits, normaliser, tokens, log_p, weight)

    def mix_nearest(
        self, states: Tensor, table: Chosen, lists: Tensor, shares: tuple[Tensor, Tensor], scores: Scores,
        falling: Falling, metric: Metric,
    ) -> tuple[Tensor, Tensor] | None:  # fmt: skip
        """Mix what the nearest row of each state (B, K, d) has listed into logits, in place, in one go: the new
        normaliser and the distance of that row, both (B, K). None where that is not done in one go.

        lists: (B, N), of each row of the table; shares: tokens and log_p of each list, both (lists, k)
        """
        return None

    def _in_bytes(self, rows: Rows, rough: Callable[[Tensor], T]) -> T:
        """Rows in bytes, as `rough` makes them, once."""
        if rows.values not in self._rough:
            self._rough[rows.values] = rough(rows.values)
        found: T = self._rough[rows.values]
        return found

    def _nearest(
        self, rows: Rows, starts: Tensor, stops: Tensor, queries: Tensor, count: int, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same in one block; numbers in the block, or places among its members, and anything where FAR."""
        squared = torch.full((len(queries), count), FAR, device=queries.device)
        numbers = torch.zeros((len(queries), count), dtype=torch.int64, device=queries.device)
        asking = (stops > starts).nonzero().flatten()
        if not len(asking):
            return squared, numbers
        order, ends = grouped(starts[asking, None], stops[asking, None])
        asking = asking[order]
        firsts = np.array([0, *ends[:-1]])  # of each range's queries
        counts = np.diff(firsts, append=len(asking))
        begins, bounds = (each[asking[torch.from_numpy(firsts)]].cpu().numpy() for each in (starts, stops))
        lengths = bounds - begins
        alone = lengths * counts >= self.scanned if members is None else np.zeros(len(firsts), np.bool_)
        for number in alone.nonzero()[0]:
            some = asking[firsts[number] : firsts[number] + counts[number]]
            near = self._scan(rows, int(begins[number]), int(bounds[number]), queries[some], count)
            squared[some, : near[0].size(1)], numbers[some, : near[1].size(1)] = near
        rest = _pieces(np.stack((firsts, counts, begins, lengths))[:, ~alone])
        for some, of, missing, begin in _gathered(rest, asking, self.gathered):
            chosen = of if members is None else members[of].long()
            near = self.make(Keys([rows]), chosen, missing).nearest(queries[some], count)
            width = near[0].size(2)
            squared[some, :width], numbers[some, :width] = near[0], begin + near[1]
        return squared, numbers

    def _scan(self, rows: Rows, start: int, stop: int, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The rows start to stop nearest to queries (Q, d), some rows at a time. Both (Q, up to count)."""
        stretch = min(max(COMPARED // len(queries), STRETCHES[0]), STRETCHES[1])
        best = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        for first in range(start, stop, stretch):
            some = slice(first, min(first + stretch, stop))
            squared, places = self.make(Keys([rows]), some).nearest(queries, count)
            best = torch.cat((best, pack(squared, places + first)), dim=1)
            best = best.topk(min(count, best.size(1)), dim=1, largest=False).values
        return unpack(best)


def _pieces(ranges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranges with TOGETHER queries at most. Both (4, n): the place of each one's first query, how many it has, its
    first row, and its length."""
    pieces = -(-ranges[1] // TOGETHER)
    found = np.repeat(ranges, pieces, axis=1)
    which = np.arange(len(found[0])) - np.repeat(pieces.cumsum() - pieces, pieces)
    found[0] += which * TOGETHER
    found[1] = np.minimum(found[1] - which * TOGETHER, TOGETHER)
    return found


def _gathered(ranges: NDArray[np.int64], asking: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Ranges of similar length together: their queries (G, q), rows (G, N), which are missing, and first row (G, 1, 1).

    ranges: (4, n), as `_pieces` has them, of places in `asking` (Q,); most: rows that are together. One with fewer
    queries than others repeats its last.
    """
    ranges = ranges[:, np.argsort(-ranges[3], kind="stable")]
    device, falling, at = asking.device, -ranges[3], 0
    columns = torch.from_numpy(ranges).to(device)
    while at < len(falling):
        length = -int(falling[at])
        end = min(len(falling), at + max(1, most // length))
        end = at + int(np.searchsorted(falling[at:end], -length // 2, side="right"))
        first, size, start, long = (column[at:end, None] for column in columns)
        widest = int(ranges[1, at:end].max())
        query = first + torch.minimum(torch.arange(widest, device=device), size - 1)
        places = torch.arange(length, device=device)
        missing = places >= long
        yield asking[query], (start + places).masked_fill_(missing, 0), missing, start[..., None]
        at = end


def grouped(starts: Tensor, stops: Tensor) -> tuple[Tensor, list[int]]:
    """An order of queries in which those of the same ranges stand together, and where each group's queries end.

    Both (Q, blocks). Ranges that do not overlap have different sums; where others have the same, a group may come in
    pieces.
    """
    order = (starts + stops).sum(dim=1).argsort(stable=True)
    both = torch.cat((starts, stops), dim=1)[order]
    new = (both[1:] != both[:-1]).any(dim=1).nonzero().flatten() + 1
    return order, [*new.tolist(), len(order)]
