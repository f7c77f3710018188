"""The second level above the clusters of frequent types: cells of clusters that lie together.

A part has cells for its types with more than COARSE_FROM clusters. In a store of many parts a type may have many in all
parts together and few in each: cells of these are made here, once, when the store is first searched. So what a source
token is compared with grows with the square root of its type's clusters, in however many parts they are.

The clusters of rarer types are all compared. A part has at least one for each of its types, so that in many parts a
type has many, each in a page of its own. Copies of their means are laid side by side here, once: what is read in one
run is read several times as fast.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.metric import as_query
from knnmt.search.nearest import runs
from knnmt.search.rows import Keys, Rows
from knnmt.systems.view import View

COARSE_FROM = 1024  # clusters of a type in a part, above which the part has cells of them
ACROSS_FROM = 128  # clusters of a type in all parts together, above which cells of them are made here
FINER = 2  # times √n cells of n clusters: several of them are searched, so that cells smaller than √n cost less in all
BESIDE_FROM = 16  # clusters of a type in all parts together, above which their means are laid side by side
ASSIGNED = 1 << 13  # clusters that are assigned to cells at a time


class Beside(NamedTuple):
    """Copies of the means of clusters in many parts: those of a cell, or of a rarer type, lie side by side.

    order: (N,), the numbers of the clusters; values: (N, d), their means; rest: (V, 2), the clusters of a type that are
    in no cell, as places in both. laid: (V,), the types whose means are there: a rarer type's are copied when it is
    first met, so that only those take memory that are asked for
    """

    order: Tensor
    values: Tensor
    rest: Tensor
    laid: Tensor

    @torch.inference_mode()  # `values` may have been made in it, and could not be changed outside
    def lay(self, view: View, types: Tensor) -> None:
        """Have the means of these types there."""
        new = types[~self.laid[types]].unique()
        if len(new):
            begin, end = self.rest[new].T
            places = runs(begin, end - begin)
            self.values[places] = _means(view, self.order[places])
            self.laid[new] = True


class Levels(NamedTuple):
    """The cells of all types.

    offsets: (V + 1,), where a type's cells begin; means: of the cells; ranges: (cells, 2), the clusters of each, as
    places in `beside`, or as their numbers where that is None
    """

    offsets: Tensor
    means: Keys[Rows]
    ranges: Tensor
    beside: Beside | None = None

    def rows(self, view: View, means: Keys[Rows]) -> Keys[Rows]:
        """The means of clusters by their places; those that are not found among `means` are not found here either."""
        if self.beside is None:
            return means
        norms = view.search.take([block.norms for block in means.blocks], means.starts, self.beside.order)
        return Keys([Rows(self.beside.values, norms)])

    def numbers(self, places: Tensor) -> Tensor:
        """The numbers of the clusters at these places."""
        return places if self.beside is None else self.beside.order[places]


def levels_of(view: View) -> Levels:
    """The cells of a store's types; parts that are hidden as a whole are left out."""
    parts = tuple(view.live_parts())
    made: dict[tuple[int, ...], Levels] = view.kept("cells of clusters", dict)
    if parts not in made:
        made.clear()  # other parts are hidden now than before: what was made for those left takes much memory
        made[parts] = _levels(view, parts)
    return made[parts]


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
    laid = torch.ones_like(loose, dtype=torch.bool)
    rare = loose > BESIDE_FROM
    rare[deep] = False
    laid[rare] = False
    begins, sizes = clusters[:, :-1][:, rare] + firsts[:, None], clusters.diff(dim=1)[:, rare]  # (parts, types)
    ends = used + sizes.sum(dim=0).cumsum(0)
    rest[rare] = torch.stack((ends - sizes.sum(dim=0), ends), dim=1)
    chosen = torch.cat((*order, runs(begins.T.flatten(), sizes.T.flatten())))
    cells_of = torch.cat(means)
    values = cells_of.new_empty((len(chosen), cells_of.size(1)))
    values[:used] = _means(view, chosen[:used])
    offsets = torch.nn.functional.pad(cells.cumsum(0), (1, 0))
    rows = Keys([Rows(cells_of, view.search.norms(cells_of))])
    return Levels(offsets, rows, torch.cat(ranges), Beside(chosen, values, rest, laid))


def _means(view: View, clusters: Tensor) -> Tensor:
    """The means of clusters (n,). (n, d)."""
    return view.search.take(view.blocks("cluster_source"), view.starts("clusters"), clusters)


def _cells(view: View, clusters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cells of clusters (n,), about 2√n: around some of them, then around the means of what lies there."""
    rows = _means(view, clusters)
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
