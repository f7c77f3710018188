"""Search among float16 rows on a GPU.

Its tensor cores multiply float16 numbers and add them up as float32. A query is float32: it is the sum of two float16
numbers, up to 2⁻²² of its size, and both are multiplied at once, since time goes into reading the rows. So rows are
read as they are stored, half as wide as a copy in float32 would be.
"""

import torch
from torch import Tensor

from knnmt.search.nearest import BLOCK, Table
from knnmt.search.rows import FAR, Keys, Rows
from knnmt.search.search import Search

SCANNED = 1 << 22  # comparisons of the queries of one range that are worth launching kernels for them alone
GATHERED = 1 << 21


class CudaSearch(Search):
    """Search by torch on a GPU."""

    scanned, gathered = SCANNED, GATHERED

    def make(self, keys: Keys[Rows], numbers: Tensor | slice, missing: Tensor | None = None) -> Table:
        """Rows to compare with."""
        return SplitTable(keys, numbers, missing) if keys.plain else super().make(keys, numbers, missing)


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
        asked = -2.0 * flat
        high = asked.half()
        both = torch.cat((high, (asked - high.float()).half()), dim=1)
        rows = self.rows.view(-1, *self.rows.shape[-2:])
        products = torch.bmm(both, rows.mT, out_dtype=torch.float32)
        product = products[:, : flat.size(1)].add_(products[:, flat.size(1) :])
        squared = flat.square().sum(dim=-1, keepdim=True)
        found = product.add_(self.norms.view(len(rows), 1, -1)).add_(squared)
        return found.view(*queries.shape[:-1], -1)
