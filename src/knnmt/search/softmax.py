"""The softmax over all rows that a sentence sees, by their projected states, summed by token.

To search for the nearest would cost more than to sum up all of them; rows that are far away weigh nothing.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search.metric import distance
from knnmt.search.mix import Falling
from knnmt.search.nearest import BySentence, Table
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.settings import Metric

FADED = 80.0  # times T: what is so much farther than the nearest weighs nothing in float32


class Shares(NamedTuple):
    """tokens, log_p: (B, K, D), padded with the first of a row; nearest: (B, K), the smallest distance; log_z: (B, K),
    the log of the sum of exp(−d/T), where that was asked for."""

    tokens: Tensor
    log_p: Tensor
    nearest: Tensor
    log_z: Tensor | None

    def scores(self, weight: float) -> Tensor:
        """The log of what each token gets of the sum of exp(−d/T), times a weight; -inf for padding. (B, K, D)."""
        assert self.log_z is not None
        padding = self.tokens == self.tokens[..., :1]
        padding[..., 0] = False
        return (self.log_p + (self.log_z + log(weight))[:, :, None]).masked_fill_(padding, -torch.inf)


class Softmax(BySentence):
    """Rows `numbers` (B, N) of keys, none where -1, each with its token (B, N).

    They are sorted by token, so that a step sums up what each token gets (B, K, D) in one pass.
    """

    by_sentence: tuple[str, ...] = ("numbers", "tokens", "slots", "distinct", "padding", "_columns", "_table")

    def __init__(self, buffers: Buffers, keys: Keys[ProjectedRows], numbers: Tensor, tokens: Tensor) -> None:
        self.buffers, self.keys = buffers, keys
        self.numbers, self.tokens, missing = sorted_by_token(numbers, tokens)
        new = torch.ones_like(missing)
        new[:, 1:] = self.tokens[:, 1:] != self.tokens[:, :-1]
        new &= ~missing
        self.slots = (new.cumsum(dim=1) - 1).clamp_min_(0)  # which of its sentence's tokens each row has
        self.distinct, self.padding = _distinct(self.tokens, self.slots, new)
        self.empty = bool(missing.all(dim=1).any())
        self._table: Table | None = None
        self._columns: Tensor | None = None

    @property
    def table(self) -> Table:
        """The rows, to be multiplied."""
        if self._table is None:
            numbers, _ = self.listed()
            self._table = Table(self.buffers, self.keys, numbers.clamp_min(0), numbers < 0)
        return self._table

    def listed(self) -> tuple[Tensor, Tensor]:
        """The rows in the order of `distances`, by token, then number: their numbers, padded with -1, and tokens."""
        return self.numbers, self.tokens

    def distances(self, states: Tensor, metric: Metric) -> Tensor:
        """Of states (B, K, d) to all rows, in their order. (B, K, N)."""
        squared = self.table.distances_about(self.keys.blocks[0].project(states))[:, :, : self.table.count]
        return distance(squared.clamp_min_(0.0), metric)

    def shares(self, states: Tensor, temperature: float, metric: Metric, *, summed: bool = False) -> "Shares":
        """The softmax of −d/T, summed by token; with `summed`, the sum that it was divided by, too."""
        distances = self.distances(states, metric)
        nearest = distances.amin(dim=2)
        if distances.device.type == "cpu":  # sums of denormal numbers would take several times as long
            distances = torch.minimum(distances, nearest[:, :, None] + FADED * temperature)
        p = distances.mul_(-1.0 / temperature).softmax(dim=2)
        return self.by_token(p, nearest, temperature, summed=summed)

    def mix(
        self, states: Tensor, temperature: float, metric: Metric, stretch: Tensor, falling: Falling, logits: Tensor,
        normaliser: Tensor, places: Tensor | None,
    ) -> tuple[Tensor, Tensor] | None:  # fmt: skip
        """Mix the softmax into logits (B, K, V), in place, in one loop: their normaliser and the smallest distance,
        both (B, K). None where there is no such loop.

        stretch: (B, 1), by which λ falls more slowly; places: (V,), where the logit of each token is, if elsewhere
        """
        return None

    def by_token(self, p: Tensor, nearest: Tensor, temperature: float, *, summed: bool) -> "Shares":
        """The softmax p (B, K, N), summed by token; nearest: (B, K), the smallest distance."""
        if self.empty:  # nothing has no softmax
            p = p.nan_to_num_()
        if self._columns is None or self._columns.shape[:2] != p.shape[:2]:
            self._columns = self.distinct[:, None].repeat(1, p.size(1), 1)  # a copy is read faster than a view
        total = p.new_zeros(self._columns.shape).scatter_add_(2, self.slots[:, None].expand(p.shape), p)
        log_p = torch.where(self.padding[:, None], total[:, :, :1], total).log_()
        log_z = -nearest / temperature - p.amax(dim=2).log() if summed else None
        return Shares(self._columns, log_p, nearest, log_z)


def sorted_by_token(numbers: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (B, N), none where the number is -1, sorted by token: their numbers and tokens; and where none are left."""
    missing = numbers < 0
    tokens, order = tokens.masked_fill(missing, torch.iinfo(torch.int64).max).sort(dim=1, stable=True)
    missing = missing.gather(1, order)
    return numbers.gather(1, order), tokens.masked_fill_(missing, 0), missing


def _distinct(tokens: Tensor, slots: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct tokens of each row, ascending, padded with its first one; and where they are padded. Both (B, D)."""
    counts = new.sum(dim=1, keepdim=True)
    longest = max(1, int(counts.max()))
    distinct = tokens[:, :1].repeat(1, longest)
    row, place = new.nonzero(as_tuple=True)
    distinct[row, slots[row, place]] = tokens[row, place]
    return distinct, torch.arange(longest, device=tokens.device) >= counts
