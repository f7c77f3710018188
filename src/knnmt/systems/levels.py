"""The second level above the clusters of frequent types: cells of clusters that lie together.

A part has cells for its types with more than COARSE_FROM clusters. In a store of many parts a type may have many in all
parts together and few in each: cells of these are made here, once, when the store is first searched. So what a source
token is compared with grows with the square root of its type's clusters, in however many parts they are.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.metric import as_query
from knnmt.search.nearest import runs
from knnmt.search.rows import FAR, Keys, Rows
from knnmt.systems.view import View

COARSE_FROM = 1024  # clusters of a type in a part, above which the part has cells of them
ACROSS_FROM = 128  # clusters of a type in all parts together, above which cells of them are made here
FINER = 2  # times √n cells of n clusters: several of them are searched, so that cells smaller than √n cost less in all
ASSIGNED = 1 << 13  # clusters that are assigned to cells at a time


class Levels(NamedTuple):
    """The cells of all types.

    offsets: (V + 1,), where a type's cells begin; means: of the cells; ranges: (cells, 2), the clusters of each, as
    places in `order`, which has the numbers of clusters cell by cell, or None where that is their own order. rest: (V,
    2), the clusters of a type with cells that are in none, or None where there are none. values: the means of clusters
    in that order
    """

    offsets: Tensor
    means: Keys[Rows]
    ranges: Tensor
    order: Tensor | None = None
    rest: Tensor | None = None
    values: Tensor | None = None

    def rows(self, view: View, means: Keys[Rows]) -> Keys[Rows]:
        """The means of clusters in this order; those that are not found among `means` are not found here either."""
        if self.values is None or self.order is None:
            return means
        norms = view.search.take([block.norms for block in means.blocks], means.starts, self.order)
        return Keys([Rows(self.values, view.search.norms(self.values))]).without(norms == FAR)

    def numbers(self, places: Tensor) -> Tensor:
        """The numbers of the clusters at these places."""
        return places if self.order is None else self.order[places]


def levels_of(view: View) -> Levels:
    """The cells of a store's types; parts that are hidden as a whole are left out."""
    parts = view.live_parts()
    return view.kept(f"cells of the clusters of parts {parts}", lambda: _levels(view, parts))


def _levels(view: View, parts: Sequence[int]) -> Levels:
    if len(view.parts) == 1:
        return Levels(view.blocks("coarse_offsets")[0], view.means("coarse_source"), view.blocks("coarse_ranges")[0])
    clusters, coarse = (
        torch.stack([view.blocks(name)[part] for part in parts]) for name in ("cluster_offsets", "coarse_offsets")
    )  # (parts, V + 1)
    own = coarse.diff(dim=1) > 0  # types that a part has cells of
    loose = clusters.diff(dim=1).masked_fill(own, 0).sum(dim=0)  # clusters that are in no part's cells
    deep = (own.any(dim=0) | (loose > ACROSS_FROM)).nonzero().flatten().tolist()
    firsts = view.first("clusters")[list(parts)]
    cells, rest = torch.zeros_like(loose), torch.zeros_like(loose)[:, None].repeat(1, 2)
    order, ranges, means = [loose[:0]], [rest[:0]], [view.blocks("coarse_source")[0][:0]]
    used = 0
    for kind in deep:
        begins, sizes = clusters[:, kind] + firsts, clusters[:, kind + 1] - clusters[:, kind]
        groups = []
        for place in own[:, kind].nonzero().flatten().tolist():
            some, part = slice(*coarse[place, kind : kind + 2].tolist()), parts[place]
            first, last = view.blocks("coarse_ranges")[part][some].T
            members = runs(first + firsts[place], counts := (last - first).clamp_min(0))
            groups.append((members, counts, view.blocks("coarse_source")[part][some]))
        if loose[kind] > 0:
            groups.append(_cells(view, runs(begins, sizes.masked_fill(own[:, kind], 0))))
        for members, counts, found in groups:
            ends = used + counts.cumsum(0)
            if len(found):
                ranges.append(torch.stack((ends - counts, ends), dim=1))
                means.append(found)
                cells[kind] += len(found)
            else:
                rest[kind, 0], rest[kind, 1] = used, used + len(members)
            order.append(members)
            used += len(members)
    chosen, found = torch.cat(order), torch.cat(means)
    values = view.search.take(view.blocks("cluster_source"), view.starts("clusters"), chosen)
    offsets = torch.nn.functional.pad(cells.cumsum(0), (1, 0))
    rows = Keys([Rows(found, view.search.norms(found))])
    return Levels(offsets, rows, torch.cat(ranges), chosen, rest if bool(rest.any()) else None, values)


def _cells(view: View, clusters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cells of clusters (n,), about 2√n: around some of them, then around the means of what lies there."""
    rows = view.search.take(view.blocks("cluster_source"), view.starts("clusters"), clusters)
    if len(clusters) <= ACROSS_FROM:
        return clusters, clusters.new_tensor([len(clusters)]), rows[:0]
    number = FINER * (math.isqrt(len(clusters) - 1) + 1)
    values = rows.float()
    means = values[torch.arange(number, device=view.device) * len(clusters) // number]
    cell = _assigned(values, means)
    counts = cell.bincount(minlength=number)
    means = torch.zeros_like(means).index_add_(0, cell, values)[counts > 0] / counts[counts > 0, None]
    means = as_query(means, view.metric).half()
    cell = _assigned(values, means.float())
    counts = cell.bincount(minlength=len(means))
    return clusters[cell.argsort(stable=True)], counts[counts > 0], means[counts > 0]


def _assigned(values: Tensor, means: Tensor) -> Tensor:
    """The nearest of means (c, d) to each of values (n, d). (n,)."""
    norms = means.square().sum(dim=1)
    return torch.cat([torch.addmm(norms, some, means.T, alpha=-2.0).argmin(dim=1) for some in values.split(ASSIGNED)])
