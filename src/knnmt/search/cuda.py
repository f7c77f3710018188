"""Search on a GPU, and mixing what was found, by Triton's kernels where they can be compiled.

Rows are read as they are stored, half as wide as a copy in float32 would be, or first in bytes.
"""

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search.cuda_tables import RoughTable, SplitTable, product
from knnmt.search.matches import Asked, Index, Limits, Matches, match, squared
from knnmt.search.metric import Decay, distance
from knnmt.search.mix import Falling, Scores
from knnmt.search.nearest import Table
from knnmt.search.rows import FAR, Keys, ProjectedRows, Rows
from knnmt.search.search import Chosen, Search
from knnmt.search.softmax import Seen, Shares, Softmax
from knnmt.settings import Metric

SCANNED = 1 << 22  # comparisons of the queries of one range that are worth launching kernels for them alone
GATHERED = 1 << 21
LARGE = 1 << 16  # rows of a block from which a scan is worth a copy of them in bytes
MANY = 256  # rows of a sentence from which they are compared in bytes first
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

    def make(self, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None) -> Table:
        """Rows to compare with."""
        return SplitTable(keys, numbers, missing) if keys.plain else super().make(keys, numbers, missing)

    def table(self, keys: Keys[Rows], numbers: Tensor) -> Chosen:
        """The rows `numbers` (B, N) of keys, none where -1."""
        block = keys.blocks[0]
        if len(keys.blocks) > 1 or numbers.size(1) < MANY or not self._scanned(block):
            return super().table(keys, numbers)
        return RoughTable(self.kernels, self.scans, block, self._in_bytes(block, self.scans.rough), numbers)

    def softmax(self, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> Softmax:
        """Rows that all get a share."""
        if self.kernels is None:
            return ScaledSoftmax(self.buffers, keys, seen, decay)
        return FusedSoftmax(self.kernels, self.buffers, keys, seen, decay)

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
        if stop - start < LARGE or not self._scanned(rows):
            return super()._scan(rows, start, stop, queries, count)
        some = slice(start, stop)
        rough = self._in_bytes(rows, self.scans.rough).some(some)
        squared, places = self.scans.nearest(rows.values[some], rough, rows.norms[some], queries, count)
        return squared, places + start

    def _scanned(self, rows: Rows) -> bool:
        """Whether rows can be compared in bytes first."""
        return self.scans is not None and rows.plain and rows.width <= self.scans.WIDEST


class ScaledSoftmax(Softmax):
    """The same sums in fewer passes: a product of the bytes of rows gives −d/T at once, less a number that all rows of
    a state share."""

    by_sentence = (*Softmax.by_sentence, "_bytes", "_levels")

    def __init__(self, buffers: Buffers, keys: Keys[ProjectedRows], seen: Seen, decay: Decay) -> None:
        super().__init__(buffers, keys, seen, decay)
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
        scores = torch.add(self._levels, product(queries, self._bytes), alpha=2.0 * scale)
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
        numbers, _, farther = self.listed()
        block = self.keys.blocks[0]
        values = torch.empty((numbers.numel(), block.values.size(1)), dtype=torch.int8, device=numbers.device)
        self.keys.copy_values(numbers.clamp_min(0).flatten(), values)
        rows = block.numbers(values).view(*numbers.shape, -1)
        levels = torch.add(rows.float().square_().sum(dim=2), farther, alpha=block.step**-2)
        return rows, levels.masked_fill_(numbers < 0, FAR).mul_(-self.scale)


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
