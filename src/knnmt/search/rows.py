"""Rows that are searched: states as float16, product-quantized, or in bytes; in one block or several.

A block is what one part of a store has. Numbers go on from block to block, so that a row has one number however the
rows are cut into blocks. A row that must not be found has an infinite squared norm: it is infinitely far away.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from knnmt.model.panels import Panels
from knnmt.search.pq import decode

R = TypeVar("R", bound="Rows", covariant=True)

FAR = torch.inf  # the distance of what is not there


class Rows:
    """A block of states (N, d), with their squared norms (N,).

    codebooks: (M, 256, d/M), where rows are product-quantized codes; steps: (2, d), the middle and the unit of each
    number, where rows are bytes
    """

    def __init__(
        self, values: Tensor, norms: Tensor, codebooks: Tensor | None = None, steps: Tensor | None = None
    ) -> None:
        self.values, self.norms, self.codebooks, self.steps = values, norms, codebooks, steps

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """d."""
        return self.values.size(1) if self.codebooks is None else self.codebooks.size(0) * self.codebooks.size(2)

    @property
    def plain(self) -> bool:
        """Whether the values are the states themselves, in float16."""
        return self.codebooks is None and self.steps is None and self.values.dtype == torch.float16

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The states of these rows. (...) int64 to (..., d), float16 or float32."""
        found = self.values[rows]
        if self.steps is not None:
            return found * self.steps[1] + self.steps[0]
        return found if self.codebooks is None else decode(found, self.codebooks)

    def without(self, hidden: Tensor) -> "Rows":
        """The same rows; those that are hidden (N,) are not found."""
        return Rows(self.values, self.norms.masked_fill(hidden, FAR), self.codebooks, self.steps)


class ProjectedRows(Rows):
    """States projected to p whole numbers: |row − project(state)|² is the squared distance.

    values: (N, p) bytes, or (N, p/2), two numbers in each: `halves`. projection: (d, p), and middle: (p,), from a state
    to steps; step: what 1 counts. to_steps: state @ matrix + row is a state in steps; panels: that product for compiled
    loops
    """

    def __init__(self, values: Tensor, projection: Tensor, middle: Tensor, step: float) -> None:
        super().__init__(values, values.new_empty(0, dtype=torch.float32))
        self.step, self.projection, self.middle = step, step * projection, -step * middle
        self.to_steps = projection, -middle
        self.halves = values.size(1) < projection.size(1)

    @property
    def width(self) -> int:
        """p."""
        return self.projection.size(1)

    def numbers(self, values: Tensor) -> Tensor:
        """What the bytes of rows say. (..., p or p/2) to (..., p), int8."""
        return unpacked(values) if self.halves else values

    @cached_property
    def panels(self) -> Panels:
        """From states to steps."""
        matrix, row = self.to_steps
        return Panels(matrix.T, row, in_bytes=False)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The projected states of these rows. (...) int64 to (..., p) float32."""
        if isinstance(rows, slice):
            return self.numbers(self.values[rows]) * self.step
        found = self.values.index_select(0, rows.flatten())  # many times as fast as an index
        return (self.numbers(found) * self.step).view(*rows.shape, -1)

    def project(self, states: Tensor) -> Tensor:
        """States (..., d) as they are compared with these rows. (..., p) float32."""
        return torch.addmm(self.middle, states.flatten(0, -2), self.projection).view(*states.shape[:-1], -1)


def unpacked(values: Tensor) -> Tensor:
    """The two numbers in each byte, from -8 to 7, the one in the lower half first. (..., n) int8 to (..., 2n)."""
    return torch.stack((values << 4 >> 4, values >> 4), dim=-1).flatten(-2)


class Keys(Generic[R]):
    """The rows of one block or more, numbered consecutively."""

    def __init__(self, blocks: Sequence[R]) -> None:
        self.blocks = blocks
        self.starts = [0, *accumulate(map(len, blocks))]  # the number of each block's first row, and the end

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def width(self) -> int:
        """d."""
        return self.blocks[0].width

    @property
    def plain(self) -> bool:
        """Whether all blocks hold float16 states."""
        return all(block.plain for block in self.blocks)

    def __getitem__(self, numbers: Tensor | slice) -> Tensor:
        """The states of these rows. (...) int64 to (..., d); a slice of a single block."""
        return gather(numbers, self.starts, lambda block, rows: self.blocks[block][rows])

    def squared(self, numbers: Tensor | slice, states: Tensor) -> Tensor:
        """The squared norms of these rows; `states` (..., d) are theirs. (...).

        Those of projected rows are computed: to keep them would take more memory than computing them takes time.
        """
        if isinstance(self.blocks[0], ProjectedRows):
            return states.square().sum(dim=-1)
        return gather(numbers, self.starts, lambda block, rows: self.blocks[block].norms[rows])

    def without(self, hidden: Tensor | None) -> "Keys[Rows]":
        """The same rows; those that are hidden (N,) are not found."""
        if hidden is None:
            return self
        each = hidden.split([len(block) for block in self.blocks])
        return Keys([block.without(some) for block, some in zip(self.blocks, each, strict=True)])

    def copy_values(self, numbers: Tensor, out: Tensor) -> None:
        """Write the values of rows (n,) to `out` (n, *row)."""
        if len(self.blocks) == 1:
            torch.index_select(self.blocks[0].values, 0, numbers, out=out)
        else:
            gather(numbers, self.starts, lambda block, rows: self.blocks[block].values.index_select(0, rows), out)


def gather(
    numbers: Tensor | slice, starts: Sequence[int], take: Callable[[int, Any], Tensor], out: Tensor | None = None
) -> Tensor:
    """What `take` gives for the rows of each block, in the order of their numbers. (...) to (..., *row).

    out: where that of several blocks is written
    """
    if len(starts) == 2 or isinstance(numbers, slice):
        return take(0, numbers)
    flat = numbers.flatten()
    of = torch.bucketize(flat, torch.tensor(starts[1:-1], device=flat.device), right=True)
    order = of.argsort(stable=True)
    sizes = of.bincount(minlength=len(starts) - 1).tolist()
    for block, (where, first) in enumerate(zip(order.split(sizes), starts, strict=False)):
        if len(where):
            some = take(block, flat[where] - first)
            out = some.new_empty((len(flat), *some.shape[1:])) if out is None else out
            out[where] = some
    return take(0, numbers) if out is None else out.view(*numbers.shape, *out.shape[1:])
