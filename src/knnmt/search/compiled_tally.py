"""`Tally` on a CPU, compiled with numba: each sentence counts its segments in a small table of its own."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, share_out
from knnmt.search.nearest import Buffers
from knnmt.search.tally import Postings, Tally, Walk

Ints = NDArray[np.integer[Any]]

WORTH = 1 << 13  # postings that are worth a thread
LEAST = 1 << 4  # slots of a table
MIXED = np.uint32(2_654_435_769)  # 2^32 by the golden ratio: neighbouring segments lie far apart in a table


class CompiledTally(Tally):
    """Hash tables with open addressing, at most two thirds full: (slots, 2), a segment + 1 and its score."""

    def __init__(self, buffers: Buffers, postings: Postings, walk: Walk, batch: int, most: int) -> None:
        walked = torch.zeros((batch, walk.sizes.size(1)), dtype=torch.int64).index_add_(0, walk.owner, walk.sizes)
        distinct = walked.sum(dim=1).clamp_max(postings.first[-1])
        self.shifts = 32 - (1.5 * distinct).clamp_min(LEAST).log2().ceil().long()
        ends = (1 << (32 - self.shifts)).cumsum(0)
        self.offsets = torch.nn.functional.pad(ends, (1, 0))
        self.tables = buffers.lend(self, (int(ends[-1]), 2)).view(torch.int32)
        runs = torch.searchsorted(walk.owner, torch.arange(batch + 1))  # of each sentence
        hidden = torch.empty(0, dtype=torch.bool) if postings.hidden is None else postings.hidden
        own = runs, self.offsets, self.shifts, self.tables
        for part, (segments, shares, first) in enumerate(zip(*postings[:2], postings.first[:-1], strict=True)):
            arrays = walk.starts[:, part].contiguous(), walk.sizes[:, part].contiguous(), segments, shares, hidden, *own
            share_out(count, walked[:, part].numpy(), WORTH, first, part == 0, *(array.numpy() for array in arrays))
        self.best = torch.empty((batch, most), dtype=torch.int64)
        self.highest = torch.empty(batch, dtype=torch.int32)
        found = self.offsets, self.tables, self.best, self.highest
        share_out(rank, distinct.numpy(), WORTH, *(array.numpy() for array in found))

    def similarity(self, sentence: Tensor, segments: Tensor) -> Tensor:
        """The scores of segments (n, m) for sentences (n,), as a share of the best segment's. (n, m) float32."""
        found = torch.empty(segments.shape)
        sizes = np.full(len(sentence), segments.size(1))
        arrays = sentence, segments, self.offsets, self.shifts, self.tables, self.highest, found
        share_out(score, sizes, WORTH, *(array.numpy() for array in arrays))
        return found


@compiled
def count(
    first: int, last: int, before: int, empty: bool, starts: Ints, sizes: Ints, segments: Ints, shares: Ints,
    hidden: NDArray[np.bool_], runs: Ints, offsets: Ints, shifts: Ints, tables: Ints,
) -> None:  # fmt: skip
    """Add the postings of a part to the tables of sentences first to last. before: segments of earlier parts; empty:
    whether nothing was added yet; runs: (B + 1,), where each sentence's runs of postings begin."""
    for sentence in range(first, last):
        table = tables[offsets[sentence] : offsets[sentence + 1]]
        if empty:
            table[:] = 0
        for run in range(runs[sentence], runs[sentence + 1]):
            for at in range(starts[run], starts[run] + sizes[run]):
                segment = before + segments[at]
                if len(hidden) == 0 or not hidden[segment]:
                    slot = _slot(table, shifts[sentence], segment)
                    table[slot, 0] = segment + 1
                    table[slot, 1] += shares[at]


@compiled
def rank(first: int, last: int, offsets: Ints, tables: Ints, best: Ints, highest: Ints) -> None:
    """Fill in the best segments of sentences first to last, by heaps of packed scores and numbers, the least first."""
    most = best.shape[1]
    heap = np.empty(most, np.int64)
    for sentence in range(first, last):
        table = tables[offsets[sentence] : offsets[sentence + 1]]
        heap[:] = 0
        for slot in range(len(table)):
            if table[slot, 1] > heap[0] >> 32 or (table[slot, 1] == heap[0] >> 32 and table[slot, 1] > 0):
                _replace_least(heap, np.int64(table[slot, 1]) << 32 | (np.int64(1) << 31) - table[slot, 0])
        heap[:] = np.sort(heap)[::-1]
        highest[sentence] = max(1, heap[0] >> 32)
        for place in range(most):
            best[sentence, place] = (np.int64(1) << 31) - (heap[place] & 0xFFFFFFFF) - 1 if heap[place] else -1


@compiled
def score(
    first: int, last: int, sentences: Ints, segments: Ints, offsets: Ints, shifts: Ints, tables: Ints, highest: Ints,
    found: NDArray[np.float32],
) -> None:  # fmt: skip
    """Fill in the scores of segments (n, m) in rows first to last, relative to the best of their sentences."""
    for row in range(first, last):
        sentence = sentences[row]
        table = tables[offsets[sentence] : offsets[sentence + 1]]
        for place in range(segments.shape[1]):
            slot = _slot(table, shifts[sentence], segments[row, place])
            found[row, place] = np.float32(table[slot, 1]) / np.float32(highest[sentence])


@compiled
def _slot(table: Ints, shift: int, segment: int) -> int:
    """Where a segment is in a table, or the empty slot where it belongs."""
    slot = np.int64(np.uint32(np.uint32(segment) * MIXED) >> np.uint32(shift))
    while table[slot, 0] != segment + 1 and table[slot, 0] != 0:
        slot = slot + 1 if slot + 1 < len(table) else 0
    return slot


@compiled
def _replace_least(heap: Ints, item: int) -> None:
    """Put an item into a heap whose first item is the least, in place of that, if it is greater."""
    if item <= heap[0]:
        return
    at, child = 0, 1
    while child < len(heap):
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item
