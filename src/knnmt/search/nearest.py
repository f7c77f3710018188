"""Exact search for nearest rows: ties go to the lowest number, so that results do not depend on batching."""

import math
import weakref
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from knnmt.retrieval.tensors import Keys
    from knnmt.search.halves import HalfTable

FAR = torch.inf  # the distance of what is not there
KEPT_BUFFERS = 4  # that wait for their next use
BLOCK = 64  # distances whose smallest is looked for first
COMPARED = 1 << 26  # pairs of queries and rows that a search of all rows compares at a time
STRETCHES = 1 << 14, 1 << 20  # rows that it does that with, at least and at most


class Buffers:
    """Memory that tables use one after the other: to get it fresh costs several times what filling it does."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._free: list[Tensor] = []
        self._lock = RLock()  # while one is lent, the collector may find another's owner gone

    def lend(self, owner: object, shape: tuple[int, ...]) -> Tensor:
        """A tensor of float32 with anything in it, until its owner is gone."""
        size = math.prod(shape)
        with self._lock:
            fitting = [buffer for buffer in self._free if len(buffer) >= size]
            chosen = min(fitting, key=len) if fitting else None
            # what is too small for this will be for others: let it go
            self._free = [buffer for buffer in self._free if buffer is not chosen and (fitting or len(buffer) > size)]
        with torch.inference_mode(False):  # what is made in that mode could not be filled outside it
            buffer = chosen if chosen is not None else torch.empty(size, device=self.device)
        weakref.finalize(owner, self._take_back, buffer)
        return buffer[:size].view(shape)

    def _take_back(self, buffer: Tensor) -> None:
        with self._lock:
            self._free = sorted([*self._free, buffer], key=len)[-KEPT_BUFFERS:]


class Table:
    """Rows to be compared with queries, again and again: the rows `numbers` (..., N) of some keys, or a slice of them.

    Each row is kept with its squared length and a 1 behind it, so that one product with (-2q, 1, |q|²) is the squared
    distance. Where `missing` (..., N) there is no row.
    """

    def __init__(self, buffers: Buffers, keys: "Keys", numbers: Tensor | slice, missing: Tensor | None = None) -> None:
        *batch, count = numbers.shape if isinstance(numbers, Tensor) else (len(range(*numbers.indices(len(keys)))),)
        room = count + (-count % BLOCK if count > BLOCK else 0)
        self.rows = buffers.lend(self, (*batch, room, keys.width + 2))
        self.count = count
        if isinstance(numbers, Tensor) and batch and self.rows.device.type == "cpu":
            # one sentence at a time: what is read from memory stays small
            for sentence, row in enumerate(self.rows):
                row[:count, : keys.width] = keys[numbers[sentence]]
        else:
            self.rows[..., :count, : keys.width] = keys[numbers]
        norms = keys.lengths(numbers, self.rows[..., :count, : keys.width])
        self.rows[..., :count, keys.width] = norms if missing is None else norms.masked_fill(missing, FAR)
        self.rows[..., count:, : keys.width] = 0.0
        self.rows[..., count:, keys.width] = FAR
        self.rows[..., keys.width + 1] = 1.0

    def least(self, queries: Tensor, count: int, within: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The squared distances and places of the rows nearest to queries (..., Q, d). Both (..., Q, up to count).

        within: (..., Q) each, from which place on and up to which one a query may find rows
        """
        distances = self.distances(queries)
        if within is not None:
            places = torch.arange(distances.size(-1), device=distances.device)
            begin, end = (bound[..., None] for bound in within)
            distances.masked_fill_((places < begin) | (places >= end), FAR)
        return least(distances, min(count, self.count))

    def distances(self, queries: Tensor) -> Tensor:
        """Squared distances of queries (..., Q, d) to all rows, filled up by FAR. (..., Q, N or more)."""
        return (self.rows @ _beside(queries).mT).mT.contiguous()  # with few queries twice as fast as queries @ rows.mT

    def distances_about(self, queries: Tensor) -> Tensor:
        """The same, where rows that are equal need not have equal distances to the bit: faster with narrow rows."""
        return _beside(queries) @ self.rows.mT

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences of a batch, in rising order, are still looked up."""
        if self.rows.device.type != "cpu":
            self.rows = self.rows[sentences]
            return
        for place, sentence in enumerate(sentences.tolist()):  # to the front, in the same memory
            if place != sentence:
                self.rows[place] = self.rows[sentence]
        self.rows = self.rows[: len(sentences)]


def compiles(device: torch.device) -> bool:
    """Whether loops can be compiled for a device."""
    return device.type == "cpu" and find_spec("numba") is not None


def table(buffers: Buffers, keys: "Keys", numbers: Tensor, missing: Tensor) -> "Table | HalfTable":
    """What finds the rows nearest to queries fastest among the rows `numbers` (B, N) of keys."""
    if keys.halves:
        from knnmt.search.halves import HalfTable

        return HalfTable(buffers, keys, numbers, missing)
    return Table(buffers, keys, numbers, missing)


def nearest_of_all(buffers: Buffers, keys: "Keys", queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The squared distances and numbers of the keys nearest to queries (Q, d). Both (Q, up to count)."""
    count = min(count, len(keys))
    if keys.halves:
        from knnmt.search import halves

        all_rows, all_queries = (torch.tensor([len(each)]) for each in (keys, queries))
        return halves.search(keys, torch.tensor([0]), all_rows, queries, all_queries, count)
    stretch = min(max(COMPARED // len(queries), STRETCHES[0]), STRETCHES[1])
    best = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    for start in range(0, len(keys), stretch):
        squared, places = Table(buffers, keys, slice(start, start + stretch)).least(queries, count)
        best = torch.cat((best, pack(squared, places + start)), dim=1)
        best = best.topk(min(count, best.size(1)), dim=1, largest=False).values
    return unpack(best)


def least(distances: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` smallest of each row with their places, in order; equal ones by place. (..., N) to (..., count).

    In two passes: the smallest of each block of the row, then the rows' best blocks. The best `count` lie in the best
    `count` blocks, also where there are ties, since places rise with blocks. Rounding below 0 counts as 0.
    """
    length = distances.size(-1)
    if length <= 2 * count * BLOCK or length % BLOCK:
        return unpack(_least(distances, torch.arange(length, device=distances.device), count))
    minima = distances.unflatten(-1, (-1, BLOCK)).amin(dim=-1)
    _, best = unpack(_least(minima, torch.arange(minima.size(-1), device=distances.device), count))
    places = (best[..., None] * BLOCK + torch.arange(BLOCK, device=distances.device)).flatten(-2)
    return unpack(_least(distances.gather(-1, places), places, count))


def _beside(queries: Tensor) -> Tensor:
    """Queries as they are multiplied with rows. (..., d) to (..., d + 2)."""
    one = torch.ones_like(queries[..., :1])
    return torch.cat((-2.0 * queries, one, queries.square().sum(-1, keepdim=True)), dim=-1)


def _least(distances: Tensor, places: Tensor, count: int) -> Tensor:
    """The packed smallest. What is not negative orders as its bits do."""
    return pack(distances.clamp_min(0.0), places).topk(count, dim=-1, largest=False).values


def pack(distances: Tensor, numbers: Tensor) -> Tensor:
    """One int64 of a float32 distance and a number below 2^31, which orders by the one and then the other."""
    return (distances.contiguous().view(torch.int32).long() << 32) | numbers


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The distances and the numbers."""
    return (packed >> 32).int().view(torch.float32), packed & 0xFFFFFFFF


def runs(starts: Tensor, lengths: Tensor) -> Tensor:
    """The numbers start, start + 1, … of each run, one run after the other."""
    ends = lengths.cumsum(0)
    return torch.arange(int(ends[-1]) if len(ends) else 0, device=starts.device) + torch.repeat_interleave(
        starts - ends + lengths, lengths
    )
