"""Rows that are searched: states as float16, product-quantized, or in bytes; those of several blocks numbered on.

A block is what one part of a store has. Numbers go on from block to block, so that a row has one number however the
rows are cut into blocks. A row that must not be found has an infinite squared norm: it is infinitely far away.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

import torch
from torch import Tensor

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

    def squared(self, rows: Tensor | slice, states: Tensor) -> Tensor:
        """The squared norms of these rows; `states` (..., d) are theirs. (...)."""
        return self.norms[rows]

    def without(self, hidden: Tensor) -> "Rows":
        """The same rows; those that are hidden (N,) are not found."""
        return Rows(self.values, self.norms.masked_fill(hidden, FAR), self.codebooks, self.steps)


class ProjectedRows(Rows):
    """States projected to p numbers, each in a byte (N, p): |row − project(state)|² is the squared distance.

    projection: (d, p), and middle: (p,), from a state to steps; step: what a byte counts
    """

    def __init__(self, values: Tensor, projection: Tensor, middle: Tensor, step: float) -> None:
        super().__init__(values, values.new_empty(0, dtype=torch.float32))
        self.step, self.projection, self.middle = step, step * projection, -step * middle

    @property
    def plain(self) -> bool:
        """Never: they are bytes."""
        return False

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The projected states of these rows. (...) int64 to (..., p) float32."""
        if isinstance(rows, slice):
            return self.values[rows] * self.step
        found = self.values.index_select(0, rows.flatten())  # many times as fast as an index
        return (found * self.step).view(*rows.shape, -1)

    def squared(self, rows: Tensor | slice, states: Tensor) -> Tensor:
        """Computed from the states: norms would take more memory than computing them takes time."""
        return states.square().sum(dim=-1)

    def project(self, states: Tensor) -> Tensor:
        """States (..., d) as they are compared with these rows. (..., p) float32."""
        return torch.addmm(self.middle, states.flatten(0, -2), self.projection).view(*states.shape[:-1], -1)


class Keys(Generic[R]):
    """The rows of one block or more, numbered on."""

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

    def __getitem__(self, numbers: Tensor) -> Tensor:
        """The states of these rows. (...) int64 to (..., d)."""
        return gather(numbers, self.starts, lambda block, rows: self.blocks[block][rows])

    def squared(self, numbers: Tensor, states: Tensor) -> Tensor:
        """The squared norms of these rows; `states` (..., d) are theirs. (...)."""
        if len(self.blocks) == 1:
            return self.blocks[0].squared(numbers, states)
        flat = states.flatten(0, -2)
        found = torch.empty(len(flat), device=flat.device)
        for block, where, rows in located(numbers, self.starts):
            found[where] = self.blocks[block].squared(rows, flat[where])
        return found.view(numbers.shape)

    def without(self, hidden: Tensor) -> "Keys[Rows]":
        """The same rows; those that are hidden (N,) are not found."""
        blocks = [
            block.without(hidden[start : start + len(block)])
            for block, start in zip(self.blocks, self.starts, strict=False)
        ]
        return Keys(blocks)

    def copy_values(self, numbers: Tensor, out: Tensor) -> None:
        """Write the values of plain rows (n,) to `out` (n, d)."""
        for block, where, rows in located(numbers, self.starts):
            if where is None:
                torch.index_select(self.blocks[block].values, 0, rows, out=out)
            else:
                out[where] = self.blocks[block].values.index_select(0, rows)


def located(numbers: Tensor, starts: Sequence[int]) -> list[tuple[int, Tensor | None, Tensor]]:
    """The block, the places among `numbers` (flattened; None: all) and the rows in the block of those in each block."""
    if len(starts) == 2:
        return [(0, None, numbers.flatten())]
    flat = numbers.flatten()
    found: list[tuple[int, Tensor | None, Tensor]] = []
    for block, (first, last) in enumerate(pairwise(starts)):
        where = ((flat >= first) & (flat < last)).nonzero().flatten()
        if len(where):
            found.append((block, where, flat[where] - first))
    return found


def gather(numbers: Tensor, starts: Sequence[int], take: Callable[[int, Tensor], Tensor]) -> Tensor:
    """What `take` gives for the rows of each block, in the order of their numbers. (...) to (..., *row)."""
    if len(starts) == 2:
        return take(0, numbers)
    found = [(where, take(block, rows)) for block, where, rows in located(numbers, starts)]
    if not found:
        return take(0, numbers)
    whole = found[0][1].new_empty((numbers.numel(), *found[0][1].shape[1:]))
    for where, some in found:
        whole[where] = some
    return whole.view(*numbers.shape, *whole.shape[1:])
