"""The softmax over all rows that a sentence sees, by their projected states, summed by token.

To search for the nearest would cost more than to sum up all of them; rows that are far away weigh nothing.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search.metric import Decay, distance
from knnmt.search.mix import Falling, Scores
from knnmt.search.nearest import BySentence, Table
from knnmt.search.rows import Keys, ProjectedRows

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


class Seen(NamedTuple):
    """The rows that sentences see: their numbers, -1 for none, their tokens, and what is added to the squared distance
    of each. All (B, N)."""

    numbers: Tensor
    tokens: Tensor
    farther: Tensor

    def by_token(self) -> "Seen":
        """The same, sorted by token, those that are there first."""
        missing = self.numbers < 0
        tokens, order = self.tokens.masked_fill(missing, torch.iinfo(torch.int64).max).sort(dim=1, stable=True)
        numbers, farther, missing = (each.gather(1, order) for each in (self.numbers, self.farther, missing))
        return Seen(numbers, tokens.masked_fill_(missing, 0), farther)


class Softmax(BySentence):
    """Rows of keys that sentences see, each with a weight by its distance.

    They are sorted by token, so that a step sums up what each token gets (B, K, D) in one pass.
    """

    by_sentence: tuple[str, ...] = ("numbers", "tokens", "farther", "_runs", "_table")
    summing = True  # whether every step needs the runs: made in one, they would have it wait for the device

    def __init__(self, buffers: Buffers, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> None:
        self.buffers, self.keys, self.decay = buffers, keys, decay
        self.numbers, self.tokens, self.farther = seen.by_token()
        self._table: Table | None = None
        self._runs = Runs(self.numbers, self.tokens) if self.summing else None

    @property
    def table(self) -> Table:
        """The rows, to be multiplied."""
        if self._table is None:
            numbers, _, farther = self.listed()
            self._table = Table(self.buffers, self.keys, numbers.clamp_min(0), numbers < 0)
            self._table.rows[:, : self._table.count, self.keys.width] += farther
        return self._table

    def listed(self) -> Seen:
        """The rows in the order of `distances`, by token, then number."""
        return Seen(self.numbers, self.tokens, self.farther)

    def distances(self, states: Tensor) -> Tensor:
        """Of states (B, K, d) to all rows, in their order. (B, K, N)."""
        squared = self.table.distances_about(self.keys.blocks[0].project(states))[:, :, : self.table.count]
        return distance(squared.clamp_min_(0.0), self.decay.metric)

    def shares(self, states: Tensor, *, summed: bool = False) -> Shares:
        """The softmax of −d/T, summed by token; with `summed`, the sum that it was divided by, too."""
        distances, temperature = self.distances(states), self.decay.temperature
        nearest = distances.amin(dim=2)
        if distances.device.type == "cpu":  # sums of denormal numbers would take several times as long
            distances = torch.minimum(distances, nearest[:, :, None] + FADED * temperature)
        p = distances.mul_(-1.0 / temperature).softmax(dim=2)
        return self.by_token(p, nearest, summed=summed)

    def mix(self, states: Tensor, scores: Scores, falling: Falling, stretch: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mix the softmax into logits (B, K, V), in place, in one loop: their normaliser and the smallest distance,
        both (B, K). None where there is no such loop. stretch: (B, 1), by which λ falls more slowly."""
        return None

    def by_token(self, p: Tensor, nearest: Tensor, *, summed: bool) -> Shares:
        """The softmax p (B, K, N), summed by token; nearest: (B, K), the smallest distance."""
        if self._runs is None:
            self._runs = Runs(self.numbers, self.tokens)
        columns, log_p = self._runs.summed(p)
        log_z = -nearest / self.decay.temperature - p.amax(dim=2).log() if summed else None
        return Shares(columns, log_p, nearest, log_z)


class Runs(BySentence):
    """Rows as `Seen.by_token` has them, as runs of the same token: slots (B, N), which of its sentence's distinct
    tokens each has; distinct (B, D), these, padded with the first one, which is where `padding` (B, D)."""

    by_sentence = ("slots", "distinct", "padding", "_columns")

    def __init__(self, numbers: Tensor, tokens: Tensor) -> None:
        there = numbers >= 0
        new = torch.ones_like(there)
        new[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
        new &= there
        self.slots = (new.cumsum(dim=1) - 1).clamp_min_(0)
        counts = new.sum(dim=1, keepdim=True)
        longest = max(1, int(counts.max()))
        self.distinct = tokens[:, :1].repeat(1, longest)
        row, place = new.nonzero(as_tuple=True)
        self.distinct[row, self.slots[row, place]] = tokens[row, place]
        self.padding = torch.arange(longest, device=tokens.device) >= counts
        self.empty = not bool(there.any(dim=1).all())
        self._columns: Tensor | None = None

    def summed(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of p (B, K, N) by token: the tokens, and the log of each. Both (B, K, D)."""
        if self.empty:  # nothing has no softmax
            p.nan_to_num_()
        if self._columns is None or self._columns.shape[:2] != p.shape[:2]:
            self._columns = self.distinct[:, None].repeat(1, p.size(1), 1)  # a copy is read faster than a view
        total = p.new_zeros(self._columns.shape).scatter_add_(2, self.slots[:, None].expand(p.shape), p)
        return self._columns, torch.where(self.padding[:, None], total[:, :, :1], total).log_()
