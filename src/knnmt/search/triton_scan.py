"""The rows nearest to queries among all rows, on a GPU, without a distance for each pair of them being written.

Tensor cores compare each query with all rows, both in bytes, and only the least distance in each GROUP of rows is kept.
The `count` nearest lie in at most `count` groups; some more are chosen, since bytes are rough, and the rows of these
are compared as they are stored.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from knnmt.search.nearest import BLOCK, least
from knnmt.search.triton_kernels import block_of

WIDEST = 1024  # numbers of a row: a block of wider ones has no room in a multiprocessor
GROUP = 64  # rows whose least distance is kept
SPARE = 8, 4  # rows or groups chosen beyond those asked for: so many, and one for so many of these
CHOSEN = 64, 4  # rows of a sentence that are compared at a time, by so many warps
NUMBERS = 32  # bytes of a row that tensor cores multiply at least
STRIP = BLOCK  # groups that one program compares its queries with; a whole number of `least`'s blocks
WRITTEN = 1 << 28  # distances of groups that are written at a time
MADE = 1 << 17  # rows whose bytes are made at a time


class Rough(NamedTuple):
    """Rows in bytes (N, d), and what a byte of each counts (N,)."""

    values: Tensor
    units: Tensor

    def some(self, rows: slice) -> "Rough":
        """Some of the rows."""
        return Rough(self.values[rows], self.units[rows])


def rough(rows: Tensor) -> Rough:
    """Rows (N, d) in bytes; the largest number of a row is 127."""
    found = Rough(torch.empty(rows.shape, dtype=torch.int8, device=rows.device), rows.new_empty(len(rows)).float())
    for some, values, units in zip(rows.split(MADE), *(each.split(MADE) for each in found), strict=True):
        units.copy_(some.abs().amax(dim=1).float().div_(127.0).clamp_min_(1e-30))
        values.copy_((some / units[:, None]).round_())
    return found


def try_all(device: torch.device) -> None:
    """Compile and run all of them once: whatever is wrong here is told now."""
    rows = torch.zeros(GROUP, 32, dtype=torch.float16, device=device)
    made = rough(rows)
    nearest(rows, made, rows[:, 0].float(), rows[:1].float(), 1)
    of_sentences(made.values[None], made.units[None], made.units[None], rows[None, :1].float())


def nearest(rows: Tensor, bytes_of: Rough, norms: Tensor, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Squared distances and places of the `count` rows nearest to queries (Q, d), nearest first, ties by place.

    rows: (N, d) float16; norms: (N,), infinite where a row must not be found. Both (Q, up to count).
    """
    most = min(count, len(rows))
    stretch = max(1, WRITTEN // max(1, len(queries)) // STRIP) * STRIP * GROUP
    asked = Queries(queries)
    found = []
    for first in range(0, len(rows), stretch):
        some = slice(first, first + stretch)
        squared, places = _of(rows[some], bytes_of.some(some), norms[some], asked, most)
        found.append((squared, places + first))
    if len(found) == 1:
        return found[0]
    places = torch.cat([place for _, place in found], dim=1)
    squared, best = least(torch.cat([squared for squared, _ in found], dim=1), most)
    return squared, places.gather(1, best)


def spare(count: int) -> int:
    """How many more are chosen by bytes than are asked for."""
    return SPARE[0] + count // SPARE[1]


def of_sentences(values: Tensor, units: Tensor, norms: Tensor, queries: Tensor) -> Tensor:
    """The squared distances, roughly, of queries (B, K, d) to the rows of their sentence: values (B, N, d), units and
    norms (B, N), as `Rough` and `nearest` have them. (B, K, N)."""
    (batch, beams, width), total = queries.shape, values.size(1)
    asked = Queries(queries.flatten(0, 1))
    found = torch.empty(batch, beams, total, device=queries.device)
    if found.numel():
        block, warps = CHOSEN
        _of_sentences[batch, triton.cdiv(total, block)](
            values, units, norms, asked.rough.values, asked.rough.units, asked.squared, found, total, beams, width,
            block_of(width, NUMBERS), block_of(beams), block, num_warps=warps,
        )  # fmt: skip
    return found


class Queries:
    """Queries (Q, d), as they are and in bytes."""

    def __init__(self, queries: Tensor) -> None:
        self.queries, self.squared = queries.contiguous(), queries.square().sum(dim=1)
        self.rough = rough(self.queries)


def _of(rows: Tensor, bytes_of: Rough, norms: Tensor, asked: Queries, count: int) -> tuple[Tensor, Tensor]:
    """The same among rows that are compared at once."""
    groups = _groups(bytes_of, norms, asked)
    chosen = least(groups, min(count + spare(count), triton.cdiv(len(rows), GROUP)))[1].sort(dim=1).values
    squared, at = least(_members(rows, norms, asked, chosen), min(count, len(rows)))
    return squared, chosen.gather(1, at // GROUP) * GROUP + at % GROUP


def _groups(rows: Rough, norms: Tensor, asked: Queries) -> Tensor:
    """The least squared distance, roughly, of each query to each group of rows; infinite for those that fill the last
    strip. (Q, groups)."""
    (total, width), count = rows.values.shape, len(asked.queries)
    strips = triton.cdiv(total, GROUP * STRIP)
    wide = block_of(width, NUMBERS)
    tall, stages = (128, 4) if wide <= 256 else (128, 3) if wide <= 512 else (64, 2)
    found = torch.empty(count, strips * STRIP, device=norms.device)
    _least_of_groups[triton.cdiv(count, tall), strips](
        rows.values, rows.units, norms, asked.rough.values, asked.rough.units, asked.squared, found, total, count,
        width, wide, tall, GROUP, STRIP, num_warps=4, num_stages=stages,
    )  # fmt: skip
    return found


def _members(rows: Tensor, norms: Tensor, asked: Queries, chosen: Tensor) -> Tensor:
    """Squared distances of each query to the rows of the groups chosen for it (Q, C). (Q, C·GROUP)."""
    (total, width), (count, groups) = rows.shape, chosen.shape
    found = torch.empty(count, groups * GROUP, device=rows.device)
    _of_members[count, groups](
        rows, norms, asked.queries, chosen.contiguous(), found, total, groups, width, block_of(width, NUMBERS), GROUP
    )
    return found


@triton.jit(do_not_specialize=["total", "count"])
def _least_of_groups(
    rows, units, norms, queries, scales, squared, found, total, count, width: tl.constexpr, wide: tl.constexpr,
    tall: tl.constexpr, group: tl.constexpr, strip: tl.constexpr,
):  # fmt: skip
    query = tl.program_id(0) * tall + tl.arange(0, tall)
    asking = query < count
    column = tl.arange(0, wide)
    whole = column < width
    at = query.to(tl.int64)[:, None] * width + column[None, :]
    values = tl.load(queries + at, mask=asking[:, None] & whole[None, :], other=0)
    scale = -2.0 * tl.load(scales + query, mask=asking, other=0.0)
    own = tl.load(squared + query, mask=asking, other=0.0)
    into = found + query.to(tl.int64) * (tl.num_programs(1) * strip) + tl.program_id(1) * strip
    for step in range(strip):
        row = (tl.program_id(1) * strip + step) * group + tl.arange(0, group)
        there = row < total
        each = row.to(tl.int64)[None, :] * width + column[:, None]
        compared = tl.load(rows + each, mask=there[None, :] & whole[:, None], other=0)
        unit = tl.load(units + row, mask=there, other=0.0)
        norm = tl.load(norms + row, mask=there, other=float("inf"))
        product = tl.dot(values, compared).to(tl.float32) * unit[None, :]
        tl.store(into + step, own + tl.min(norm[None, :] + scale[:, None] * product, axis=1), mask=asking)


@triton.jit(do_not_specialize=["total", "beams"])
def _of_sentences(
    rows, units, norms, queries, scales, squared, found, total, beams, width: tl.constexpr, wide: tl.constexpr,
    tall: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    sentence = tl.program_id(0).to(tl.int64)
    row, beam = tl.program_id(1) * block + tl.arange(0, block), tl.arange(0, tall)
    there, asking = row < total, beam < beams
    column = tl.arange(0, wide)
    whole = column < width
    at, query = sentence * total + row, sentence * beams + beam
    compared = tl.load(rows + at[:, None] * width + column[None, :], mask=there[:, None] & whole[None, :], other=0)
    values = tl.load(queries + query[None, :] * width + column[:, None], mask=asking[None, :] & whole[:, None], other=0)
    unit = tl.load(units + at, mask=there, other=0.0)
    norm = tl.load(norms + at, mask=there, other=float("inf"))
    scale = 2.0 * tl.load(scales + query, mask=asking, other=0.0)
    own = tl.load(squared + query, mask=asking, other=0.0)
    product = tl.dot(compared, values).to(tl.float32) * unit[:, None] * scale[None, :]
    into = found + query[None, :] * total + row[:, None]
    tl.store(into, norm[:, None] + own[None, :] - product, mask=there[:, None] & asking[None, :])


@triton.jit(do_not_specialize=["total", "groups"])
def _of_members(
    rows, norms, queries, chosen, found, total, groups, width: tl.constexpr, wide: tl.constexpr, group: tl.constexpr
):
    query, place = tl.program_id(0).to(tl.int64), tl.program_id(1)
    number = tl.load(chosen + query * groups + place)
    row = number * group + tl.arange(0, group)
    there = row < total
    column = tl.arange(0, wide)
    whole = column < width
    state = tl.load(queries + query * width + column, mask=whole, other=0.0)
    each = row.to(tl.int64)[:, None] * width + column[None, :]
    values = tl.load(rows + each, mask=there[:, None] & whole[None, :], other=0.0)
    hidden = tl.load(norms + row, mask=there, other=float("inf")) == float("inf")
    apart = values.to(tl.float32) - state[None, :]
    squared = tl.where(hidden, float("inf"), tl.sum(apart * apart, axis=1))
    tl.store(found + (query * groups + place) * group + tl.arange(0, group), squared)
