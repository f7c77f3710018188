"""How a decoder state is looked up in what its sentence may see: every step, for all beams of all sentences at once.

A lookup is made when a batch of sentences starts, holds its tensors on the device, and has no Python loop over
sentences, beams or tokens in a step, nor anything that waits for the device (FAISS aside). `find` gives the entries
with their distances; `neighbours` gives p_kNN, which for `Ranked` is prepared beforehand.
"""

from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from knnmt.retrieval.combine import Neighbours, merge
from knnmt.retrieval.select import Selection
from knnmt.retrieval.tensors import Tensors
from knnmt.search.nearest import FAR, Table, least, nearest_of_all, table
from knnmt.systems.settings import RetrievalSettings

FADED = 80.0  # of T: what is so much farther than the nearest weighs nothing in float32


class Found(NamedTuple):
    """The entries found for each state, all (B, K, k): entry -1 and distance inf where there is none.

    nearest: (B, K), the smallest distance that the lookup saw: of an entry, or of the cluster that was chosen.
    log_counts: how many entries each of those found stands for, as a logarithm; 0 where it stands for itself.
    """

    entries: Tensor
    tokens: Tensor
    distances: Tensor
    nearest: Tensor
    log_counts: Tensor

    def scores(self, temperature: float) -> Tensor:
        """What the softmax is taken of. (B, K, k)."""
        return self.log_counts - self.distances / temperature

    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Entries, tokens, distances and log counts, all (B, K, k)."""
        return self.entries, self.tokens, self.distances, self.log_counts.expand_as(self.distances)


class Lookup(Protocol):
    """What a state finds. states: (B, K, d), float32, as `Tensors.query` gives them."""

    def find(self, states: Tensor) -> Found:
        """The entries, one by one."""
        ...

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution, by token."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        ...


class Exact:
    """The k nearest of the entries that a sentence sees (Fast; Fast + clustered source)."""

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        self.entries = selection.entries
        self.table = table(tensors.buffers, tensors.keys("target"), self.entries.clamp_min(0), self.entries < 0)
        self.tokens = tensors["target_ids"][self.entries.clamp_min(0)].long()

    def find(self, states: Tensor) -> Found:
        """The nearest of the sentence's own entries."""
        return self._nearest(states, self.settings.k or self.table.count)

    def _nearest(self, states: Tensor, count: int, within: tuple[Tensor, Tensor] | None = None) -> Found:
        """The nearest of the places that each state may find (B, K), from the first to that behind the last."""
        squared, places = self.table.least(states, count, within)
        entries, tokens = (each[:, None].expand(-1, places.size(1), -1) for each in (self.entries, self.tokens))
        distances = self.tensors.distance(squared)
        entries = entries.gather(2, places).masked_fill_(distances == FAR, -1)
        return Found(entries, tokens.gather(2, places), distances, distances[:, :, 0], distances.new_zeros(()))

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        return _distribution(self.find(states), self.tensors, self.settings)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        self.entries, self.tokens = self.entries[rows], self.tokens[rows]
        self.table.keep(rows)


class Whole:
    """The k nearest entries of the whole store, compared with every one of them (kNN-MT)."""

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        keys = tensors.keys("target")
        self.keys = keys if tensors.hidden is None else keys.without(tensors.hidden)

    def find(self, states: Tensor) -> Found:
        """The nearest of all entries."""
        found = nearest_of_all(self.tensors.buffers, self.keys, states.flatten(0, 1), self.settings.k or 1)
        squared, entries = (each.unflatten(0, states.shape[:2]) for each in found)
        return _found(self.tensors, squared, entries)

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        return _distribution(self.find(states), self.tensors, self.settings)

    def keep(self, rows: Tensor) -> None:
        """All sentences see the same."""


class Indexed(Whole):
    """The k nearest entries by the store's FAISS index, which approximates; it searches on the CPU."""

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        self.index = tensors.index(settings.nprobe)
        self.parameters = None if tensors.hidden is None else _less(tensors.hidden, self.index)

    def find(self, states: Tensor) -> Found:
        """The nearest in the lists that are searched."""
        count = min(self.settings.k or 1, self.index.ntotal)
        squared, entries = self.index.search(states.flatten(0, 1).cpu().numpy(), count, params=self.parameters)
        shape = (*states.shape[:2], count)
        entries = torch.from_numpy(entries).to(states.device).view(shape)
        squared = torch.from_numpy(squared).to(states.device).view(shape).clamp_min(0.0)
        return _found(self.tensors, squared.masked_fill(entries < 0, FAR), entries.clamp_min(0))


class Ranked:
    """The nearest cluster's entries by their cached ranking (Faster): d = d(cluster, h) + d(cluster, entry).

    The first term is the same for all entries of the cluster and cancels in the softmax: p_kNN of a cluster is a row
    that is made once a batch. With `probe` > 1 the entries of several clusters are ranked together by the sum.
    """

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        clusters, self.rows = selection.clusters.unique(return_inverse=True)  # the row of each sentence's clusters
        self.entries, self.tokens, self.distances = _rankings(tensors, clusters, settings)
        self.merged = merge(self.tokens, -self.distances / settings.temperature_of(tensors.scale))
        empty = (self.distances == FAR).all(dim=1)[self.rows]
        self.table = table(tensors.buffers, tensors.means("cluster_target"), selection.clusters.clamp_min(0), empty)

    def find(self, states: Tensor) -> Found:
        """The first k of the nearest cluster, or of several together."""
        squared, rows = self._clusters(states)
        nearest = self.tensors.distance(squared)
        distances = nearest[..., None] + self.distances[rows]
        lists = self.entries[rows], self.tokens[rows], distances
        return Found(*_first_of_each(*lists, self.settings.k), nearest[:, :, 0], distances.new_zeros(()))

    def neighbours(self, states: Tensor) -> Neighbours:
        """The distribution of the nearest cluster, or of several together."""
        if self.settings.probe > 1:
            return _distribution(self.find(states), self.tensors, self.settings)
        squared, rows = self._clusters(states)
        rows = rows[:, :, 0]
        return Neighbours(self.merged[0][rows], self.merged[1][rows], self.tensors.distance(squared[:, :, 0]))

    def _clusters(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distances and the rows of the nearest clusters, (B, K, probe) each."""
        squared, places = self.table.least(states, self.settings.probe)
        return squared, self.rows[:, None].expand(-1, places.size(1), -1).gather(2, places)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        self.rows = self.rows[rows]
        self.table.keep(rows)


class Prototypes(Exact):
    """The k prototypes with the best score: log count - d/T, with d the distance of their target mean."""

    table: Table

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        numbers = selection.entries
        there = numbers.clamp_min(0)
        self.table = Table(tensors.buffers, tensors.prototypes("target"), there, numbers < 0)
        self.entries = tensors["proto_entries"][there, 0].long().masked_fill_(numbers < 0, -1)
        self.tokens = tensors["proto_tokens"][there].long()
        self.log_counts = tensors["proto_counts"][there].float().log()
        # added to a distance, it ranks as the score does and keeps it from being negative: T·(most log count - its own)
        behind = self.log_counts.amax(dim=1, keepdim=True) - self.log_counts
        self.handicaps = settings.temperature_of(tensors.scale) * behind

    def find(self, states: Tensor) -> Found:
        """The best of the sentence's prototypes."""
        distances = self.tensors.distance(self.table.distances(states).clamp_min_(0.0))
        distances[:, :, : self.table.count] += self.handicaps[:, None]
        ranked, places = least(distances, min(self.settings.k or self.table.count, self.table.count))
        columns = self.entries, self.tokens, self.log_counts, self.handicaps
        entries, tokens, log_counts, handicaps = (
            column[:, None].expand(-1, places.size(1), -1).gather(2, places) for column in columns
        )
        distances = ranked - handicaps
        entries = entries.masked_fill(distances == FAR, -1)
        return Found(entries, tokens, distances, distances.amin(dim=-1), log_counts)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        super().keep(rows)
        self.log_counts, self.handicaps = self.log_counts[rows], self.handicaps[rows]


class Small:
    """Everything that a sentence sees, by its narrow keys: p_kNN is the softmax over all of it, not over the k nearest.

    To search for those would cost more than to add up all; entries that are far away weigh nothing. They are in the
    order of their tokens, so that a step adds up what each token gets (B, K, D) in one pass.
    """

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        self.tensors, self.settings = tensors, settings
        missing = selection.entries < 0
        tokens = tensors["target_ids"][selection.entries.clamp_min(0)].long()
        tokens, order = tokens.masked_fill_(missing, torch.iinfo(torch.int64).max).sort(dim=1, stable=True)
        self.entries, missing = selection.entries.gather(1, order), missing.gather(1, order)
        self.keys = tensors.small("target")
        new = torch.ones_like(missing)
        new[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
        new &= ~missing
        self.slots = (new.cumsum(dim=1) - 1).clamp_min_(0)  # which of its sentence's tokens each entry has
        self.tokens = tokens.masked_fill_(missing, 0)
        self.distinct = _filled(self.tokens, self.slots, new, tensors.store.sizes["target_vocabulary"])
        self.table: Table | None = None
        self.columns: Tensor | None = None
        self.empty = bool(missing.all(dim=1).any())

    def find(self, states: Tensor) -> Found:
        """All that the sentence sees."""
        distances = self._distances(states)
        shape = distances.shape
        entries, tokens = (each[:, None].expand(shape) for each in (self.entries, self.tokens))
        return Found(entries, tokens, distances, distances.amin(dim=2), distances.new_zeros(()))

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution: a softmax, and a sum for each token."""
        distances = self._distances(states)
        nearest, temperature = distances.amin(dim=2), self.settings.temperature_of(self.tensors.scale)
        # sums of numbers that are too small to be normal would take several times as long
        faded = torch.minimum(distances, nearest[:, :, None] + FADED * temperature)
        p = faded.mul_(-1.0 / temperature).softmax(dim=2)
        if self.empty:  # nothing has no softmax
            p = p.nan_to_num_()
        if self.columns is None or self.columns.shape[:2] != p.shape[:2]:
            self.columns = self.distinct[:, None].repeat(1, p.size(1), 1)  # a copy is read faster than a view
        total = p.new_zeros(self.columns.shape).scatter_add_(2, self.slots[:, None].expand(p.shape), p)
        return Neighbours(self.columns, total.log_(), nearest)

    def _distances(self, states: Tensor) -> Tensor:
        """(B, K, N)."""
        if self.table is None:
            self.table = Table(self.tensors.buffers, self.keys, self.entries.clamp_min(0), self.entries < 0)
        squared = self.table.distances_about(self.keys.narrow(states))[:, :, : self.table.count]
        return self.tensors.distance(squared.clamp_min_(0.0))

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        if self.table is not None:
            self.table.keep(rows)
        self.entries, self.tokens = self.entries[rows], self.tokens[rows]
        self.slots, self.distinct, self.columns = self.slots[rows], self.distinct[rows], None


class ClusterExact(Exact):
    """The k entries of the nearest cluster that are nearest to the state itself (Faster without cached distances)."""

    def __init__(self, tensors: Tensors, selection: Selection, settings: RetrievalSettings) -> None:
        super().__init__(tensors, selection, settings)
        clusters, slots = selection.clusters, selection.slots
        sizes = slots.new_zeros((len(slots), clusters.size(1) + 1))
        sizes.scatter_add_(1, slots % sizes.size(1), torch.ones_like(slots))  # no slot (-1) is the one behind the last
        sizes = sizes[:, :-1]
        self.largest = int(sizes.max()) if sizes.numel() else 1
        self.bounds = torch.nn.functional.pad(sizes.cumsum(dim=1), (1, 0))  # a cluster's entries stand together
        self.means = table(tensors.buffers, tensors.means("cluster_target"), clusters.clamp_min(0), sizes == 0)

    def find(self, states: Tensor) -> Found:
        """The nearest of the nearest cluster's members."""
        slot = self.means.least(states, 1)[1][:, :, 0]
        within = self.bounds.gather(1, slot), self.bounds.gather(1, slot + 1)
        return self._nearest(states, self.settings.k or self.largest, within)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        super().keep(rows)
        self.bounds = self.bounds[rows]
        self.means.keep(rows)


# --------------------------------------------------------------------------------------------------------- shared


def _filled(tokens: Tensor, slots: Tensor, new: Tensor, vocabulary: int) -> Tensor:
    """The distinct tokens of each row, in rising order, filled up by tokens that it has not. (B, N) to (B, D).

    So all of a row are different, and what is written for one does not meet what is written for another.
    """
    counts = new.sum(dim=1)
    absent = torch.ones((len(tokens), vocabulary), dtype=torch.bool, device=tokens.device)
    row, place = new.nonzero(as_tuple=True)
    absent[row, tokens[row, place]] = False
    longest = max(1, int(counts.max()))
    slot = absent.cumsum(dim=1) + counts[:, None] - 1
    absent &= slot < longest
    distinct = torch.empty((len(tokens), longest), dtype=torch.int64, device=tokens.device)
    distinct[row, slots[row, place]] = tokens[row, place]
    row, filler = absent.nonzero(as_tuple=True)
    distinct[row, slot[row, filler]] = filler
    return distinct


def _less(hidden: Tensor, index: Any) -> Any:
    """What makes a FAISS index search among the entries that are not hidden (E,)."""
    faiss: Any = import_module("faiss")  # its types do not know the arguments that these take
    kept = faiss.IDSelectorBitmap(np.packbits(~hidden.cpu().numpy(), bitorder="little"))
    if hasattr(index, "nprobe"):
        return faiss.SearchParametersIVF(sel=kept, nprobe=index.nprobe)
    return faiss.SearchParameters(sel=kept)


def _found(tensors: Tensors, squared: Tensor, entries: Tensor) -> Found:
    """What an exact search of the whole store found. Both (B, K, k), in order."""
    distances = tensors.distance(squared)
    tokens = tensors["target_ids"][entries].long()
    entries = torch.where(distances < FAR, entries, -1)
    return Found(entries, tokens, distances, distances.amin(dim=-1), distances.new_zeros(()))


def _distribution(found: Found, tensors: Tensors, settings: RetrievalSettings) -> Neighbours:
    """p_kNN: the softmax of -d/T over what was found, summed by token."""
    merged = merge(found.tokens, found.scores(settings.temperature_of(tensors.scale)))
    return Neighbours(*merged, found.nearest)


def _rankings(tensors: Tensors, clusters: Tensor, settings: RetrievalSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Entries, tokens and distances of the first k of each cluster's ranking; all (clusters, k), filled up by inf."""
    there = clusters >= 0
    begin, end = (tensors["ranking_offsets"][clusters.clamp_min(0) + step] for step in (0, 1))
    size = torch.where(there, end - begin, 0)
    longest = max(1, int(size.max()))
    width = longest if settings.k is None or tensors.hidden is not None else min(settings.k, longest)
    places = torch.arange(width, device=clusters.device)
    missing = places >= size[:, None]
    at = (begin[:, None] + places).masked_fill_(missing, 0)
    entries, tokens = tensors["ranking_entries"][at].long(), tensors["ranking_tokens"][at].long()
    distances = tensors.distance(tensors["ranking_distances"][at])
    if tensors.hidden is not None:
        missing |= tensors.hidden[entries]
    distances = distances.masked_fill(missing, FAR)
    if tensors.hidden is not None:  # those behind a hidden one move up
        distances, order = least(distances, min(settings.k or width, width))
        entries, tokens = entries.gather(1, order), tokens.gather(1, order)
    return torch.where(distances < FAR, entries, -1), tokens, distances


def _first_of_each(entries: Tensor, tokens: Tensor, distances: Tensor, k: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest entries of several lists; an entry in two lists counts once, by its smaller distance.

    All (B, K, lists, length), to (B, K, k). A single list is in order already, and no longer than k.
    """
    length = entries.size(3)
    entries, tokens, distances = (each.flatten(2) for each in (entries, tokens, distances))
    if entries.size(2) > length:
        order = (entries << 32 | distances.contiguous().view(torch.int32)).argsort(dim=-1)
        entries, tokens, distances = (each.gather(2, order) for each in (entries, tokens, distances))
        repeated = torch.zeros_like(entries, dtype=torch.bool)
        repeated[..., 1:] = entries[..., 1:] == entries[..., :-1]
        distances, order = least(distances.masked_fill(repeated, FAR), min(k or entries.size(2), entries.size(2)))
        entries, tokens = entries.gather(2, order), tokens.gather(2, order)
    return torch.where(distances < FAR, entries, -1), tokens, distances
