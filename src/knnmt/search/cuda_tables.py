"""Rows chosen for a batch of sentences, on a GPU, to be compared with queries at every step.

Its tensor cores multiply float16 numbers and add them up as float32. A query is float32: it is the sum of two float16
numbers, up to 2⁻²² of its size, and both are multiplied at once, since time goes into reading the rows. Where there are
many rows, they are read in bytes, and the best of them again as they are stored.
"""

from typing import Any

import torch
from torch import Tensor

from knnmt.search.nearest import BLOCK, BySentence, Table, least
from knnmt.search.rows import FAR, Keys, Rows


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
        found = product(-2.0 * flat, self.rows.view(-1, *self.rows.shape[-2:]))
        squared = flat.square().sum(dim=-1, keepdim=True)
        found.add_(self.norms.view(len(flat), 1, -1)).add_(squared)
        return found.view(*queries.shape[:-1], -1)


class RoughTable(BySentence):
    """Rows `numbers` (B, N) of a block, none where -1, in bytes, as they are in `rough`: a `Chosen`."""

    by_sentence = ("numbers", "values", "units", "norms")

    def __init__(self, kernels: Any, scans: Any, block: Rows, rough: Any, numbers: Tensor) -> None:
        self._kernels, self._scans, self.block = kernels, scans, block
        self.count = numbers.size(1)
        self.numbers = numbers = torch.nn.functional.pad(numbers, (0, -self.count % BLOCK), value=-1)
        there = numbers.clamp_min(0)
        self.values, self.units = rough.values[there], rough.units[there]
        self.norms = block.norms[there].masked_fill(numbers < 0, FAR)

    def nearest(
        self, queries: Tensor, count: int, within: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Squared distances and places of the rows nearest to queries (B, K, d). Both (B, K, up to count)."""
        rough = self._scans.of_sentences(self.values, self.units, self.norms, queries)
        if within is not None:
            places = torch.arange(rough.size(2), device=rough.device)
            rough.masked_fill_((places < within[0][..., None]) | (places >= within[1][..., None]), FAR)
        count = min(count, self.count)
        best = least(rough, min(count + self._scans.spare(count), rough.size(2)))[1].sort(dim=2).values
        missing = rough.gather(2, best) == FAR
        numbers = self.numbers[:, None].expand(-1, best.size(1), -1).gather(2, best).masked_fill_(missing, -1)
        exact = self._kernels.squared(self.block.values, queries.flatten(0, 1), numbers.flatten(0, 1)).view(best.shape)
        squared, at = least(exact.masked_fill_(missing, FAR), count)
        return squared, best.gather(2, at)


def product(queries: Tensor, rows: Tensor) -> Tensor:
    """Queries (B, Q, d), float32, times rows (B, N, d), float16. (B, Q, N) float32."""
    high = queries.half()
    both = torch.cat((high, (queries - high.float()).half()), dim=1)
    if both.device.type == "cuda":
        products = torch.bmm(both, rows.mT, out_dtype=torch.float32)
    else:  # whose product of float16 numbers would be one
        products = torch.bmm(both.float(), rows.mT.float())
    return products[:, : queries.size(1)].add_(products[:, queries.size(1) :])
