"""The systems by name: each is a way to select, once a sentence, and a way to look up, every step."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.errors import StoreError, UsageError
from knnmt.model.transformer import States
from knnmt.retrieval import lookup, select
from knnmt.retrieval.combine import Neighbours, learned, mix, weights
from knnmt.retrieval.gate import Purpose, require_gate
from knnmt.retrieval.taught import Heard, LessonLookup
from knnmt.retrieval.tensors import Tensors
from knnmt.search.nearest import compiles
from knnmt.store.store import Store
from knnmt.systems.settings import RetrievalSettings, tuned_settings

Select = Callable[[Tensors, select.Source, RetrievalSettings], select.Selection]
MakeLookup = Callable[[Tensors, select.Selection, RetrievalSettings], lookup.Lookup]

TYPES = ("type_offsets", "source_keys", "source_norms")
LINKS = ("link_offsets", "link_entries")
CLUSTERS = ("cluster_offsets", "cluster_source", "coarse_offsets", "coarse_ranges", "coarse_source")
MEMBERS = ("cluster_starts", *LINKS)
KEYS = ("target_ids", "target_keys", "target_norms")
TEXTS = ("text", "text_offsets", "target_ids", "target_offsets")  # for evidence
PROTOTYPES = (
    "proto_offsets", "proto_tokens", "proto_counts", "proto_entries", "proto_members",
    "proto_source", "proto_source_norms", "proto_source_steps",
    "proto_target", "proto_target_norms", "proto_target_steps",
)  # fmt: skip
SMALL = (
    "small_source", "small_source_projection", "small_source_middle", "small_source_step",
    "small_target", "small_target_projection", "small_target_middle", "small_target_step",
    "token_segments", "token_shares", "segment_starts", "segment_tokens",
)  # fmt: skip
RANKINGS = ("cluster_target", "ranking_offsets", "ranking_entries", "ranking_tokens", "ranking_distances")


@dataclass(frozen=True)
class System:
    """How a system selects and looks up, and the arrays that it opens (keys may be quantized)."""

    select: Select
    lookup: MakeLookup
    arrays: tuple[str, ...]


def _small(tensors: Tensors, selection: select.Selection, settings: RetrievalSettings) -> lookup.Lookup:
    """`Small`, compiled where that is possible."""
    if compiles(tensors.device):
        from knnmt.retrieval.narrow import CompiledSmall

        return CompiledSmall(tensors, selection, settings)
    return lookup.Small(tensors, selection, settings)


SYSTEMS = {
    "knn": System(select.everything, lookup.Whole, KEYS),
    "fast": System(select.near_tokens, lookup.Exact, (*TYPES, *CLUSTERS, *MEMBERS, *KEYS)),
    "fast-clustered": System(select.near_members, lookup.Exact, (*CLUSTERS, *MEMBERS, *KEYS)),
    "faster": System(select.near_clusters, lookup.Ranked, (*CLUSTERS, *RANKINGS)),
    "faster-exact": System(
        select.near_members_by_cluster, lookup.ClusterExact, (*CLUSTERS, *MEMBERS, *KEYS, "cluster_target")
    ),
    "similar": System(select.near_segments, _small, ("target_ids", "target_offsets", "type_offsets", *LINKS, *SMALL)),
    "proto": System(select.near_prototypes, lookup.Prototypes, PROTOTYPES),
}  # and base MT, which is none of them


AUTO = ("similar", "proto", "fast", "faster", "knn")  # what `auto` is: the first of these that the store was built for


def serves(store: Store, name: str) -> bool:
    """Whether a store was built for a system; its keys may be quantized."""
    arrays = SYSTEMS[name].arrays
    return all(map(store.provides, arrays))


def automatic(store: Store) -> str:
    """The system that `auto` stands for with a store."""
    for name in AUTO:
        if serves(store, name):
            return name
    raise StoreError(f"{store.path} was built for none of {', '.join(AUTO)}: name a system that it has")


def chosen_settings(store: Store, system: str | None, given: RetrievalSettings | None) -> RetrievalSettings:
    """The settings that a store is searched with: those given, else those it was tuned to, else the defaults.

    What it was tuned to is for one system, and not used where another one is named; `auto` is the one it was tuned for.
    """
    tuned = tuned_settings(store.path) if given is None else None
    if tuned is not None and system not in (None, "auto", tuned.system):
        tuned = None  # what is good for one system need not be for another
    chosen = given or tuned or RetrievalSettings()
    return chosen if system is None or (tuned and system == "auto") else chosen.of(system)


def require_system(name: str) -> System:
    """The system of a name."""
    if name not in SYSTEMS:
        raise UsageError(f"there is no system {name!r}: use {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


class Retriever:
    """A store, ready to be looked up by a model on its device.

    `left_out` are numbers of the store's segments that nothing may find; `tensors` are those of another retriever of
    the store, to share, with what that leaves out.
    """

    def __init__(
        self,
        store: Store,
        device: torch.device,
        settings: RetrievalSettings,
        *,
        left_out: Collection[int] = (),
        tensors: Tensors | None = None,
    ) -> None:
        if settings.system == "auto":
            settings = settings.model_copy(update={"system": automatic(store)})
        system = require_system(settings.system)
        if settings.system == "knn" and settings.index:
            system = System(select.everything, lookup.Indexed, KEYS)
        _check_k(store, settings)
        if settings.adapt == "learned":
            purpose = Purpose(settings.system, store.manifest.key, store.manifest.metric)
            settings = settings.model_copy(update={"gate": require_gate(settings.gate, purpose).on(device)})
        self.store, self.settings, self.system = store, settings, system
        self.tensors = tensors or Tensors(store, device, left_out)
        _open(store, settings.system)

    def look(self, ids: Tensor, mask: Tensor, states: Tensor) -> "SentenceLookup":
        """What sentences may see. ids, mask: (B, S); states: (B, S, d), of the encoder."""
        self.tensors.refresh()
        source, system, tensors = select.Source(ids, mask, states), self.system, self.tensors
        found = system.lookup(tensors, system.select(tensors, source, self.settings), self.settings)
        taught = tensors.taught if self.settings.weight != 0 else None  # λ = 0, given as such, is base MT
        return SentenceLookup(self, found, LessonLookup(taught, source) if taught is not None else None)


class Sources(NamedTuple):
    """Where p comes from at each step: p = weight·p_kNN + (1 − weight)·p_MT, lessons and part taken together.

    entries, tokens, distances and shares of p_kNN: (B, K, k); weight: (B, K)
    """

    entries: Tensor
    tokens: Tensor
    distances: Tensor
    shares: Tensor
    weight: Tensor


class SentenceLookup:
    """A batch of sentences in the search: mixes what their decoder states find into the model's scores.

    lookup: in the store's part, by the system; taught: among the lessons, where there are any
    """

    def __init__(self, retriever: Retriever, found: lookup.Lookup, taught: LessonLookup | None) -> None:
        self.retriever, self.lookup, self.taught = retriever, found, taught
        self.tensors, self.settings = retriever.tensors, retriever.settings
        self.key = retriever.store.manifest.key
        self.temperature = retriever.settings.temperature_of(retriever.tensors.scale)

    def mix(self, states: States, logits: Tensor, normaliser: Tensor) -> Tensor:
        """Change logits (B, K, V) in place and return their new normaliser (B, K)."""
        found = self.neighbours(states)
        weight = self.weight(found, logits, normaliser)
        normaliser = mix(logits, normaliser, found.tokens, found.log_p, weight)
        heard = self.heard(states, found.nearest)
        if heard is not None:
            normaliser = mix(logits, normaliser, *heard.distribution(), heard.weight)
        return normaliser

    def neighbours(self, states: States) -> Neighbours:
        """What decoder states find in the part."""
        return self.lookup.neighbours(self.query(states))

    def heard(self, states: States, nearest: Tensor) -> Heard | None:
        """The lessons that decoder states hear beside the nearest of the part, (B, K); None where it is sure that none
        is heard."""
        if self.taught is None:
            return None
        heard = self.taught.hear(self.query(states), nearest)
        silent = heard.weight.device.type == "cpu" and not bool(heard.weight.any())  # elsewhere to ask costs more
        return None if silent else heard

    def query(self, states: States) -> Tensor:
        """What is looked up. (B, K, d)."""
        return self.tensors.query(states.key(self.key))

    def weight(self, found: Neighbours, logits: Tensor, normaliser: Tensor) -> Tensor:
        """λ of each beam (B, K), given what it found and p_MT, as logits (B, K, V) and their normaliser (B, K)."""
        if self.settings.adapt == "learned":
            return learned(found, logits, normaliser, self.settings, self.tensors.scale)
        return weights(found.nearest, self.settings, self.tensors.scale)

    def sources(self, states: States, logits: Tensor, normaliser: Tensor) -> Sources:
        """What `mix` would mix in, entry by entry."""
        found = self.lookup.find(self.query(states))
        shares = torch.nan_to_num(found.scores(self.temperature).softmax(dim=-1))
        neighbours = self.neighbours(states)
        weight = self.weight(neighbours, logits, normaliser)
        heard = self.heard(states, neighbours.nearest)
        if heard is None:
            return Sources(found.entries, found.tokens, found.distances, shares, weight)
        whole = 1.0 - (1.0 - heard.weight) * (1.0 - weight)
        of_lessons = torch.where(whole > 0, heard.weight / whole, 0.0)[:, :, None]
        sides = (found, (1.0 - of_lessons) * shares), (heard.found, of_lessons * heard.shares())
        columns = ((side.entries, side.tokens, side.distances, some) for side, some in sides)
        entries, tokens, distances, shares = (torch.cat(pair, dim=2) for pair in zip(*columns, strict=True))
        return Sources(entries, tokens, distances, shares, whole)

    def keep(self, rows: Tensor) -> None:
        """Only these sentences are still searched."""
        self.lookup.keep(rows)
        if self.taught is not None:
            self.taught.keep(rows)


def _open(store: Store, name: str) -> None:
    """Open all arrays that a system needs: what is missing or damaged is told now, and what is mapped stays readable
    when a compaction removes the files."""
    if lacking := [one for one in SYSTEMS[name].arrays if not store.provides(one)]:
        raise StoreError(f"{store.path} was built without {lacking[0]}, which {name} needs: build it again for {name}")
    for part in store.parts:
        for one in (*SYSTEMS[name].arrays, *(text for text in TEXTS if text in part)):
            for kept in part.stored_as(one):
                part[kept]


def _check_k(store: Store, settings: RetrievalSettings) -> None:
    """Refuse a k that the store's rankings are too short for, and a k of all where that means the whole store."""
    k_max = store.manifest.settings["k_max"]
    if settings.k is None and not settings.system.startswith(("faster", "similar")):
        raise UsageError(f"{settings.system} needs a number of neighbours k")
    if settings.system == "faster" and k_max is not None and (settings.k is None or settings.k > k_max):
        asked = "all entries of a cluster" if settings.k is None else f"k={settings.k}"
        raise UsageError(f"{asked} was asked for, and {store.path} ranks {k_max} a cluster: build it with more (k_max)")
