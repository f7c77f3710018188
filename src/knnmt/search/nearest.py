"""Exact search for the nearest rows. Ties go to the lowest number, so results do not depend on batches or blocks."""

import math

import torch
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search.rows import FAR, Keys, Rows

BLOCK, SMALL_BLOCK = 64, 16  # distances whose minimum is taken first: of many, and of fewer


class BySentence:
    """What is looked up at every step by a batch of sentences, each of which has a row in what `by_sentence` names:
    tensors (B, ...), others of this kind, or None where there is nothing yet."""

    by_sentence: tuple[str, ...] = ()

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, which rise."""
        for name in self.by_sentence:
            own = getattr(self, name)
            if isinstance(own, Tensor):
                setattr(self, name, own[sentences])
            elif own is not None:
                own.keep(sentences)


class Table(BySentence):
    """Rows that queries are compared with at every step: `numbers` (..., N) of some keys, or a slice of a block.

    Each row is kept as (row, |row|², 1), so that one product with (−2q, 1, |q|²) is the squared distance. There is no
    row where `missing` (..., N).
    """

    by_sentence: tuple[str, ...] = ("rows",)

    def __init__(
        self, buffers: Buffers, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None
    ) -> None:
        *batch, count = numbers.shape if isinstance(numbers, Tensor) else (len(range(*numbers.indices(len(keys)))),)
        padding = -count % BLOCK if count > BLOCK else 0
        shape = (*batch, count + padding, keys.width + 2)
        memory, _ = buffers.lend(self, math.prod(shape))
        self.rows = memory[: math.prod(shape)].view(shape)
        self.count = count
        if isinstance(numbers, Tensor) and batch and self.rows.device.type == "cpu":
            for sentence, row in enumerate(self.rows):  # one at a time: what is gathered stays in the cache
                row[:count, : keys.width] = keys[numbers[sentence]]
        else:
            self.rows[..., :count, : keys.width] = keys[numbers]
        norms = keys.squared(numbers, self.rows[..., :count, : keys.width])
        self.rows[..., :count, keys.width] = norms if missing is None else norms.masked_fill(missing, FAR)
        self.rows[..., count:, : keys.width] = 0.0
        self.rows[..., count:, keys.width] = FAR
        self.rows[..., keys.width + 1] = 1.0

    def nearest(
        self, queries: Tensor, count: int, within: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Squared distances and places of the rows nearest to queries (..., Q, d). Both (..., Q, up to count).

        within: (..., Q) each, the first place a query may find, and the one behind the last
        """
        distances = self.distances(queries)
        if within is not None:
            places = torch.arange(distances.size(-1), device=distances.device)
            begin, end = (bound[..., None] for bound in within)
            distances.masked_fill_((places < begin) | (places >= end), FAR)
        return least(distances, min(count, self.count))

    def distances(self, queries: Tensor) -> Tensor:
        """Squared distances of queries (..., Q, d) to all rows, padded with FAR. (..., Q, N or more)."""
        return (self.rows @ _extended(queries).mT).mT.contiguous()  # few queries: twice as fast as queries @ rows.mT

    def distances_about(self, queries: Tensor) -> Tensor:
        """The same, except that equal rows need not have equal distances to the bit: faster with narrow rows."""
        rows, norms = self.rows[..., : queries.size(-1)], self.rows[..., None, :, queries.size(-1)]
        squared = queries.square().sum(dim=-1, keepdim=True)
        return torch.baddbmm(norms, queries, rows.mT, alpha=-2.0).add_(squared)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, which rise."""
        if self.rows.device.type != "cpu":
            super().keep(sentences)
            return
        for place, sentence in enumerate(sentences.tolist()):  # move to the front, in the same memory
            if place != sentence:
                self.rows[place] = self.rows[sentence]
        self.rows = self.rows[: len(sentences)]


def least(distances: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` smallest of each row with their places, in order; ties by place. (..., N) to (..., count).

    In two passes: the minimum of each block of a row, then the best blocks. The best `count` lie in the best `count`
    blocks, with ties too, since places rise with blocks. What rounding puts below 0 counts as 0.
    """
    length = distances.size(-1)
    block = BLOCK if length > 2 * count * BLOCK else SMALL_BLOCK
    if length <= 2 * count * block or length % block:
        return unpack(_least(distances, torch.arange(length, device=distances.device), count))
    minima = distances.unflatten(-1, (-1, block)).amin(dim=-1)
    _, best = unpack(_least(minima, torch.arange(minima.size(-1), device=distances.device), count))
    places = (best[..., None] * block + torch.arange(block, device=distances.device)).flatten(-2)
    return unpack(_least(distances.gather(-1, places), places, count))


def _extended(queries: Tensor) -> Tensor:
    """Queries as they are multiplied with the rows of a table. (..., d) to (..., d + 2)."""
    one = torch.ones_like(queries[..., :1])
    return torch.cat((-2.0 * queries, one, queries.square().sum(-1, keepdim=True)), dim=-1)


def _least(distances: Tensor, places: Tensor, count: int) -> Tensor:
    """The smallest, packed. Floats that are not negative order as their bits do."""
    return pack(distances.clamp_min(0.0), places).topk(count, dim=-1, largest=False).values


def pack(distances: Tensor, numbers: Tensor) -> Tensor:
    """One int64 of a float32 distance and a number below 2^31, ordered by distance, then number."""
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
