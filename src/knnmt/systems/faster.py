"""Faster kNN-MT (Wang et al. 2021) and its two ablations: the stored tokens of a type are clustered.

A source token selects the nearest cluster of its type. At each step the cluster whose target mean is nearest to the
state is looked up: Faster takes the cluster's entries in their cached ranking, with d = d(cluster, h) + d(cluster,
entry). `faster-exact` compares the entries of that cluster themselves, `fast-clustered` those of all selected clusters.
"""

from typing import Literal

import torch
from torch import Tensor

from knnmt.search.entries import as_rows
from knnmt.search.mix import Falling, Scores
from knnmt.search.nearest import least, pack, runs, unpack
from knnmt.search.rows import FAR, Keys, Rows
from knnmt.search.search import Ranges
from knnmt.store.memories import AnyStore
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.chosen import Nearest, linked
from knnmt.systems.levels import Levels, levels_of
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Defaults, Found, Neighbours, Source, System
from knnmt.systems.view import View

COARSE_PROBE = 8  # cells whose clusters are compared, in types that have a second level
COARSE_REACH = 2.0  # times the squared distance of the nearest cell: those beyond hardly ever have the nearest cluster
ASKED = 1 << 13  # clusters that are asked for visible entries at a time
ARRAYS = {
    # clusters of a type's tokens, with the means of both sides
    "cluster_offsets": offsets("source_vocabulary", into="clusters"),
    "cluster_starts": offsets("clusters", into="tokens"),
    "cluster_members": Array("int32", ("tokens",), below="tokens"),  # rows of tokens, cluster by cluster, rising
    "cluster_source": Array("float16", ("clusters", "width")),
    "cluster_target": Array("float16", ("clusters", "width")),
    # their entries nearest to the target mean, ranked
    "ranking_offsets": offsets("clusters", into="ranked"),
    "ranking_entries": Array("int32", ("ranked",), below="entries"),
    "ranking_tokens": Array("int32", ("ranked",), below="target_vocabulary"),
    "ranking_distances": Array("float32", ("ranked",)),  # squared L2
    # above many clusters of one type, a second level: ranges of clusters and their means
    "coarse_offsets": offsets("source_vocabulary", into="coarse"),
    "coarse_ranges": Array("int64", ("coarse", "2"), below="clusters+1"),
    "coarse_source": Array("float16", ("coarse", "width")),
}
declare(ARRAYS)
CLUSTERS = ("cluster_offsets", "cluster_source", "coarse_offsets", "coarse_ranges", "coarse_source")
MEMBERS = ("cluster_starts", "link_offsets", "link_entries")
KEYS = ("target_ids", "target_keys", "target_norms")
RANKINGS = ("ranking_offsets", "ranking_entries", "ranking_tokens", "ranking_distances")
Lists = Literal["link", "ranking"]
"""What a cluster's entries are: those that its tokens link to, or those that it ranks."""
OFFSETS = {"link": "cluster_starts", "ranking": "ranking_offsets"}


# ------------------------------------------------------------------------------------------------------- selection


def near_clusters(view: View, source: Source, lists: Lists) -> Tensor:
    """The clusters nearest to the tokens of each sentence, of those with visible entries, -1 for none. (B, C)."""
    sentence, types, states = source.tokens(view)
    means = view.derived(f"{lists} means", lambda: _means(view, lists))
    levels = levels_of(view)
    deep = levels.offsets[types + 1] > levels.offsets[types]  # types with so many clusters that these are in cells
    rare = torch.zeros_like(deep)  # types with so many in many parts that these lie side by side
    if levels.beside is not None:
        spans = levels.beside.rest[types]
        rare = ~deep & (spans[:, 0] < spans[:, 1])
        levels.beside.lay(view, types[rare])
    rows = view.derived(f"{lists} means by cells", lambda: levels.rows(view, means))
    few = ~deep & ~rare
    clusters = torch.empty_like(types)
    if bool(few.any()):
        ranges = view.ranges("cluster_offsets", types[few])
        clusters[few] = view.search.nearest(means, ranges, states[few], 1)[1][:, 0]
    if bool(rare.any()):
        clusters[rare] = _nearest_of_spans(view, levels, rows, spans[rare, None], states[rare])
    if bool(deep.any()):
        clusters[deep] = _nearest_of_cells(view, levels, rows, types[deep], states[deep])
    there = clusters >= 0
    return as_rows(sentence[there], clusters[there], len(source.ids), len(means))


def _means(view: View, lists: Lists) -> Keys[Rows]:
    """The source means of clusters; one without visible entries is not found."""
    means = view.means("cluster_source")
    if view.hidden is None:
        return means.without(torch.cat([offsets.diff() == 0 for offsets in view.blocks(OFFSETS[lists])]))
    empty = torch.ones(len(means), dtype=torch.bool, device=view.device)
    for some in torch.arange(len(means), device=view.device).split(ASKED):  # not all at once: they have many entries
        owner, _ = _entries(view, some, lists)
        empty.index_fill_(0, some[owner], False)
    return means.without(empty)


def _nearest_of_cells(view: View, levels: Levels, rows: Keys[Rows], types: Tensor, states: Tensor) -> Tensor:
    """The nearest cluster in the nearest cells of its type, or in none; -1 for none. (Q,), (Q, d) to (Q,)."""
    cells = levels.offsets[types], levels.offsets[types + 1]
    most = min(COARSE_PROBE, int((cells[1] - cells[0]).max()))
    away, chosen = view.search.nearest(levels.means, (cells[0][:, None], cells[1][:, None]), states, most)
    spans = levels.ranges[chosen.clamp_min(0)].masked_fill((chosen < 0)[..., None], 0)
    if levels.beside is not None and bool((rest := levels.beside.rest[types, None]).any()):
        spans = torch.cat((spans, rest), dim=1)
        away = torch.nn.functional.pad(away, (0, 1))
    near = spans.masked_fill((away > COARSE_REACH * away[:, :1])[..., None], 0)
    best = _nearest_of_spans(view, levels, rows, near, states)
    missing = (best < 0).nonzero().flatten()
    if len(missing):  # nothing is visible in the near ones
        best[missing] = _nearest_of_spans(view, levels, rows, spans[missing], states[missing])
    return best


def _nearest_of_spans(view: View, levels: Levels, rows: Keys[Rows], spans: Tensor, states: Tensor) -> Tensor:
    """The nearest cluster in spans of rows (Q, spans, 2), -1 for none. (Q,)."""
    squared, places = view.search.nearest(rows, (spans[..., 0].view(-1, 1), spans[..., 1].view(-1, 1)), states, 1)
    numbers = levels.numbers(places.clamp_min(0))
    best, numbers = unpack(pack(squared, numbers).view(len(states), -1).amin(dim=1))  # ties go to the lowest number
    return numbers.masked_fill(best == FAR, -1)


def nearest_in_cells(
    view: View, keys: Keys[Rows], cells: Ranges, states: Tensor, count: int, members: list[Tensor] | None = None
) -> Tensor:
    """The `count` rows nearest to each state (Q, d) in its cells, -1 where there are fewer. (Q, count).

    cells: where each begins, and its size, (Q, P) each; a cell lies in one part. members: as `Search.nearest` has them
    """
    begin, size = (each[..., None] for each in cells)
    first, last = (torch.tensor(bounds, device=view.device) for bounds in (keys.starts[:-1], keys.starts[1:]))
    there = (begin >= first) & (begin < last)
    ranges = torch.where(there, begin - first, 0), torch.where(there, begin - first + size, 0)
    found = view.search.nearest(keys, (ranges[0].flatten(0, 1), ranges[1].flatten(0, 1)), states, count, members)
    squared, numbers = (each.view(len(states), -1) for each in found)
    order = numbers.argsort(dim=1)  # ties go to the lowest number
    best, places = least(squared.gather(1, order), count)
    return numbers.gather(1, order).gather(1, places).masked_fill_(best == FAR, -1)


def members(view: View, clusters: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each visible entry's cluster, among clusters (n,), none where -1; and the entry, once a cluster."""
    place, entries = _entries(view, clusters, "link")
    total = view.count("entries")
    distinct = (place * total + entries).unique()
    return distinct // total, distinct % total


def _entries(view: View, clusters: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
    """The place of each visible entry's cluster, among clusters (n,), none where -1; and the entry, as often as it is
    there."""
    begin, size = view.runs(OFFSETS[lists], clusters.clamp_min(0))
    size = torch.where(clusters < 0, 0, size)
    owner = torch.arange(len(clusters), device=view.device).repeat_interleave(size)
    places = runs(begin, size)
    if lists == "ranking":
        return view.visible(owner, view["ranking_entries"][places])
    # tokens stand in the order of the corpus, or, in stores of the first format, in that of their clusters
    return linked(view, owner, view["cluster_members"][places] if "cluster_members" in view else places)


# ---------------------------------------------------------------------------------------------------------- lookup


class Ranked(Candidates):
    """The nearest cluster's entries by their cached ranking.

    d(cluster, h) is the same for all entries of the cluster and cancels in the softmax, as its memory's weight does:
    p_kNN of a cluster is a row that is made once a batch. With `probe` > 1 the entries of several clusters are ranked
    together by the sum.
    """

    by_sentence = "rows", "table"

    def __init__(self, view: View, clusters: Tensor, settings: RetrievalSettings) -> None:
        super().__init__(view, settings)
        self.probe = settings.probe
        distinct, self.rows = clusters.unique(return_inverse=True)  # the row of each sentence's clusters
        self.entries, self.tokens, self.distances = _rankings(view, distinct, self.k)
        self.merged = view.search.merge(self.tokens, -self.distances / self.temperature)
        empty = (self.distances == FAR).all(dim=1)[self.rows]
        self.table = view.search.table(view.means("cluster_target"), clusters.masked_fill(empty, -1))

    def offered(self) -> Tensor:
        """The tokens that the sentence's clusters rank."""
        return self.tokens.masked_fill(self.distances == FAR, -1)[self.rows].flatten(1)

    def find(self, states: Tensor) -> Found:
        """The first k of the nearest cluster, or of several together."""
        squared, rows = self._clusters(states)
        nearest = self.view.distance(squared)
        distances = nearest[..., None] + self.distances[rows]
        entries, tokens, distances = _first_of_each(self.entries[rows], self.tokens[rows], distances, self.k)
        return Found(entries, tokens, distances, nearest[:, :, 0], self.view.log_weights(entries))

    def neighbours(self, states: Tensor) -> Neighbours:
        """The distribution of the nearest cluster, or of several together."""
        if self.probe > 1:
            return super().neighbours(states)
        squared, rows = self._clusters(states)
        rows = rows[:, :, 0]
        return Neighbours(self.merged[0][rows], self.merged[1][rows], self.view.distance(squared[:, :, 0]))

    def mix(self, states: Tensor, scores: Scores, falling: Falling) -> tuple[Tensor, Tensor] | None:
        """Mix the distribution of the nearest cluster into logits in one go, where that can be done."""
        if self.probe > 1:
            return None
        return self.view.search.mix_nearest(
            states, self.table, self.rows, self.merged, scores, falling, self.view.metric
        )

    def _clusters(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distances and the rows of the nearest clusters, (B, K, probe) each."""
        squared, places = self.table.nearest(states, self.probe)
        return squared, self.rows[:, None].expand(-1, places.size(1), -1).gather(2, places)


class NearestCluster(Nearest):
    """The k entries of the nearest cluster that are nearest to the state itself."""

    by_sentence = *Nearest.by_sentence, "bounds", "means"

    def __init__(self, view: View, clusters: Tensor, settings: RetrievalSettings) -> None:
        place, entries = _entries(view, clusters.flatten(), "link")
        batch, width = clusters.shape
        total = view.count("entries")
        rows = as_rows(place // width, place % width * total + entries, batch, width * total)
        slots = torch.where(rows < 0, width, rows // total)  # those of no cluster go behind the last
        super().__init__(view, torch.where(rows < 0, -1, rows % total), settings)
        sizes = slots.new_zeros((batch, width + 1)).scatter_add_(1, slots, torch.ones_like(slots))[:, :-1]
        self.largest = int(sizes.max()) if sizes.numel() else 1
        self.bounds = torch.nn.functional.pad(sizes.cumsum(dim=1), (1, 0))  # a cluster's entries stand together
        self.means = view.search.table(view.means("cluster_target"), clusters.masked_fill(sizes == 0, -1))

    def find(self, states: Tensor) -> Found:
        """The nearest of the nearest cluster's entries."""
        slot = self.means.nearest(states, 1)[1][:, :, 0]
        within = self.bounds.gather(1, slot), self.bounds.gather(1, slot + 1)
        return self.nearest(states, self.k or self.largest, within)


def _rankings(view: View, clusters: Tensor, k: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Entries, tokens and distances of the first k of each cluster's ranking; all (clusters, k), padded with FAR."""
    begin, size = view.runs("ranking_offsets", clusters.clamp_min(0))
    size = torch.where(clusters >= 0, size, 0)
    longest = max(1, int(size.max()))
    width = longest if k is None or view.hidden is not None else min(k, longest)
    places = torch.arange(width, device=clusters.device)
    missing = places >= size[:, None]
    at = (begin[:, None] + places).masked_fill_(missing, 0)
    entries, tokens = view["ranking_entries"][at], view["ranking_tokens"][at].long()
    distances = view.distance(view["ranking_distances"][at])
    if view.hidden is not None:
        missing |= view.hidden[entries]
    distances = distances.masked_fill(missing, FAR)
    distances, order = least(distances, min(k or width, width))  # those behind a hidden one move up
    entries, tokens = entries.gather(1, order), tokens.gather(1, order)
    return torch.where(distances < FAR, entries, -1), tokens, distances


def _first_of_each(entries: Tensor, tokens: Tensor, distances: Tensor, k: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest entries of several lists; an entry in two lists counts once, by its smaller distance.

    All (B, K, lists, length), to (B, K, k). A single list is in order already, and no longer than k.
    """
    length = entries.size(3)
    entries, tokens, distances = (each.flatten(2) for each in (entries, tokens, distances))
    if entries.size(2) > length:
        order = distances.argsort(dim=-1, stable=True)
        order = order.gather(2, entries.gather(2, order).argsort(dim=-1, stable=True))  # by entry, then distance
        entries, tokens, distances = (each.gather(2, order) for each in (entries, tokens, distances))
        repeated = torch.zeros_like(entries, dtype=torch.bool)
        repeated[..., 1:] = entries[..., 1:] == entries[..., :-1]
        distances, order = least(distances.masked_fill(repeated, FAR), min(k or entries.size(2), entries.size(2)))
        entries, tokens = entries.gather(2, order), tokens.gather(2, order)
    return torch.where(distances < FAR, entries, -1), tokens, distances


# --------------------------------------------------------------------------------------------------------- systems


def select_ranked(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """Faster."""
    return Ranked(view, near_clusters(view, source, "ranking"), settings)


def select_exact(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """Faster without cached distances."""
    return NearestCluster(view, near_clusters(view, source, "link"), settings)


def select_members(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """Fast with clusters instead of the nearest tokens."""
    clusters = near_clusters(view, source, "link")
    place, entries = _entries(view, clusters.flatten(), "link")
    rows = as_rows(place // clusters.size(1), entries, len(clusters), view.count("entries"))
    return Nearest(view, rows, settings)


def _ranked(store: AnyStore) -> int | None:
    """The entries that a store ranks in a cluster."""
    most: int | None = store.manifest.settings["k_max"]
    return most


# a cluster's entries deserve less trust than the nearest of all
FASTER = System(
    name="faster",
    summary="takes the nearest cluster's entries in their cached ranking",
    arrays=(*CLUSTERS, "cluster_target", *RANKINGS),
    select=select_ranked,
    defaults=Defaults(weight=0.5),
    all_k=True,
    most_k=_ranked,
)
FASTER_EXACT = System(
    name="faster-exact",
    summary="compares with the nearest cluster's entries (ablation)",
    arrays=(*CLUSTERS, *MEMBERS, *KEYS, "cluster_target"),
    select=select_exact,
    defaults=Defaults(weight=0.7),
    all_k=True,
)
FAST_CLUSTERED = System(
    name="fast-clustered",
    summary="compares with the entries of all selected clusters (ablation)",
    arrays=(*CLUSTERS, *MEMBERS, *KEYS),
    select=select_members,
)
