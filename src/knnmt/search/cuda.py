"""Search on a GPU, and mixing what was found, by Triton's kernels where they can be compiled.

Its tensor cores multiply float16 numbers and add them up as float32. A query is float32: it is the sum of two float16
numbers, up to 2⁻²² of its size, and both are multiplied at once, since time goes into reading the rows. So rows are
read as they are stored, half as wide as a copy in float32 would be.
"""

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from knnmt.buffers import Buffers
from knnmt.search.matches import Asked, Index, Limits, Matches, match, squared
from knnmt.search.metric import Decay, distance
from knnmt.search.mix import Falling, Scores
from knnmt.search.nearest import BLOCK, Table
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Search
from knnmt.search.softmax import Shares, Softmax
from knnmt.settings import Metric

SCANNED = 1 << 22  # comparisons of the queries of one range that are worth launching kernels for them alone
GATHERED = 1 << 21
LARGE = 1 << 16  # rows of a block from which a scan is worth a copy of them in bytes
WIDE = 1 << 12  # tokens of a beam that one kernel mixes in
KERNELS = "triton_kernels", "triton_scan"
log = logging.getLogger(__name__)


@cache
def kernels(device: torch.device) -> tuple[Any, Any]:
    """The modules KERNELS; None where Triton is not installed or cannot compile them."""
    if find_spec("triton") is None:
        return None, None
    try:
        found = tuple(import_module(f"knnmt.search.{name}") for name in KERNELS)
        for module in found:
            module.try_all(device)
    except Exception as error:  # no C compiler, an unknown device: whatever it is, torch can do without
        log.warning("Triton's kernels cannot be used, lookups take longer: %s", error)
        return None, None
    return found[0], found[1]


class CudaSearch(Search):
    """Search by torch on a GPU."""

    scanned, gathered = SCANNED, GATHERED

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.kernels, self.scans = kernels(device)
        self._rough = WeakIdKeyDictionary()  # rows in bytes, of those that were scanned

    def make(self, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None) -> Table:
        """Rows to compare with."""
        return SplitTable(keys, numbers, missing) if keys.plain else super().make(keys, numbers, missing)

    def softmax(self, keys: Keys[ProjectedRows], numbers: Tensor, tokens: Tensor, decay: Decay) -> Softmax:
        """Rows that all get a share."""
        if self.kernels is None:
            return ScaledSoftmax(self.buffers, keys, numbers, tokens, decay)
        return FusedSoftmax(self.kernels, self.buffers, keys, numbers, tokens, decay)

    def match(self, index: Index, asked: Asked, limits: Limits) -> Matches:
        """The stored tokens that match those of sentences."""
        return match(index, asked, limits, squared if self.kernels is None else self.kernels.squared)

    def merge(self, tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The softmax of scores by token."""
        if self.kernels is None or scores.size(-1) > self.kernels.WIDEST:
            return super().merge(tokens, scores)
        return self.kernels.merge(tokens, scores)  # type: ignore[no-any-return]

    def mix(self, logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
        """Mix p_kNN into logits in place."""
        if self.kernels is None or tokens.size(-1) > WIDE:
            return super().mix(logits, normaliser, tokens, log_p, weight)
        return self.kernels.mix(logits, normaliser, tokens, log_p, weight)  # type: ignore[no-any-return]

    def mix_nearest(
        self, states: Tensor, table: Chosen, lists: Tensor, shares: tuple[Tensor, Tensor], scores: Scores,
        falling: Falling, metric: Metric,
    ) -> tuple[Tensor, Tensor] | None:  # fmt: skip
        """Mix what the nearest rows have listed into logits in one kernel."""
        if self.kernels is None or metric == "euclidean" or not isinstance(table, SplitTable):
            return None
        unit = float(distance(torch.ones(()), metric))
        found: tuple[Tensor, Tensor] = self.kernels.mix_nearest(
            states, table.rows, table.norms, lists, shares, unit, scores, falling
        )
        return found

    def _scan(self, rows: Rows, start: int, stop: int, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The rows start to stop nearest to queries (Q, d)."""
        if self.scans is None or not rows.plain or rows.width > self.scans.WIDEST or stop - start < LARGE:
            return super()._scan(rows, start, stop, queries, count)
        if rows.values not in self._rough:
            self._rough[rows.values] = self.scans.rough(rows.values)
        some = slice(start, stop)
        rough = self._rough[rows.values].some(some)
        squared, places = self.scans.nearest(rows.values[some], rough, rows.norms[some], queries, count)
        return squared, places + start


class SplitTable(Table):
    """Rows as they are stored, float16, beside their squared norms."""

    by_sentence = ("rows", "norms")

    def __init__(self, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None) -> None:
        if isinstance(numbers, slice):
            self.rows, self.norms = keys[numbers], keys.blocks[0].norms[numbers]
            self.count = len(self.rows)
            return
        self.count = numbers.size(-1)
        padding = (0, -self.count % BLOCK if self.count > BLOCK else 0)
        missing = torch.zeros_like(numbers, dtype=torch.bool) if missing is None else missing
        numbers = torch.nn.functional.pad(numbers, padding)
        missing = torch.nn.functional.pad(missing, padding, value=True)
        self.rows = keys[numbers]
        self.norms = keys.squared(numbers, self.rows).masked_fill(missing, FAR)

    def distances(self, queries: Tensor) -> Tensor:
        """Squared distances of queries (..., Q, d) to all rows, padded with FAR. (..., Q, N or more)."""
        flat = queries.reshape(-1, *queries.shape[-2:])
        product = _product(-2.0 * flat, self.rows.view(-1, *self.rows.shape[-2:]))
        squared = flat.square().sum(dim=-1, keepdim=True)
        found = product.add_(self.norms.view(len(flat), 1, -1)).add_(squared)
        return found.view(*queries.shape[:-1], -1)


class ScaledSoftmax(Softmax):
    """The same sums in fewer passes: a product of the bytes of rows gives −d/T at once, less a number that all rows of
    a state share."""

    by_sentence = (*Softmax.by_sentence, "_bytes", "_levels")

    def __init__(
        self, buffers: Buffers, keys: Keys[ProjectedRows], numbers: Tensor, tokens: Tensor, decay: Decay
    ) -> None:
        super().__init__(buffers, keys, numbers, tokens, decay)
        unit = float(distance(torch.ones(()), decay.metric))
        self.scale = unit * keys.blocks[0].step ** 2 / decay.temperature  # from a squared distance in steps to d/T
        self._bytes: Tensor | None = None  # (B, N, p), float16, which has all of them
        self._levels: Tensor | None = None  # (B, 1, N), what −d/T is without a state

    def shares(self, states: Tensor, *, summed: bool = False) -> Shares:
        """The softmax of −d/T, summed by token."""
        if self.decay.metric == "euclidean":  # which is not linear in what is multiplied
            return super().shares(states, summed=summed)
        queries, scale = self.in_steps(states), self.scale
        if self._bytes is None or self._levels is None:
            rows, levels = self.gathered()
            self._bytes, self._levels = rows.half(), levels[:, None]
        scores = torch.add(self._levels, _product(queries, self._bytes), alpha=2.0 * scale)
        squared = queries.square().sum(dim=-1)
        farther = scale * self.decay.temperature
        nearest = scores.amax(dim=2).div_(-scale).add_(squared).clamp_min_(0.0).mul_(farther)
        return self.by_token(scores.softmax(dim=2), nearest, summed=summed)

    def in_steps(self, states: Tensor) -> Tensor:
        """States (B, K, d) as rows are. (B, K, p)."""
        projection, middle = self.keys.blocks[0].to_steps
        return torch.addmm(middle, states.flatten(0, -2), projection).view(*states.shape[:-1], -1)

    def gathered(self) -> tuple[Tensor, Tensor]:
        """The rows, (B, N, p) bytes; and what −d/T is without a state, -inf where there is no row. (B, N)."""
        numbers, _ = self.listed()
        values = torch.empty((numbers.numel(), self.keys.width), dtype=torch.int8, device=numbers.device)
        self.keys.copy_values(numbers.clamp_min(0).flatten(), values)
        rows = values.view(*numbers.shape, -1)
        return rows, rows.float().square_().sum(dim=2).masked_fill_(numbers < 0, FAR).mul_(-self.scale)


class FusedSoftmax(ScaledSoftmax):
    """The same, looked up and mixed in by two kernels."""

    by_sentence = (*ScaledSoftmax.by_sentence, "_rows", "_free", "_counts")
    summing = False  # kernels sum up by token; torch does only where λ is learned, or a root is taken

    def __init__(self, kernels: Any, *given: Any) -> None:
        super().__init__(*given)
        self._kernels = kernels
        self._rows: Tensor | None = None  # (B, N, p) bytes
        self._free: Tensor | None = None  # (B, N), what −d/T is without a state
        self._counts = (self.numbers >= 0).sum(dim=1)  # those that are there come first

    def mix(self, states: Tensor, scores: Scores, falling: Falling, stretch: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mix the softmax into logits."""
        if self.decay.metric == "euclidean":
            return None
        if self._rows is None or self._free is None:
            self._rows, self._free = self.gathered()
        found: tuple[Tensor, Tensor] = self._kernels.mix_softmax(
            self.in_steps(states), self._rows, self._free, self.tokens, self._counts, self.scale,
            self.decay.temperature, scores, falling, stretch,
        )  # fmt: skip
        return found


def _product(queries: Tensor, rows: Tensor) -> Tensor:
    """Queries (B, Q, d), float32, times rows (B, N, d), float16. (B, Q, N) float32."""
    high = queries.half()
    both = torch.cat((high, (queries - high.float()).half()), dim=1)
    if both.device.type == "cuda":
        products = torch.bmm(both, rows.mT, out_dtype=torch.float32)
    else:  # whose product of float16 numbers would be one
        products = torch.bmm(both.float(), rows.mT.float())
    return products[:, : queries.size(1)].add_(products[:, queries.size(1) :])
