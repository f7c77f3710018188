"""The six systems in plain Python: what one decoder state finds in a store, and the distribution that it makes.

Base MT is `mixed` with NOTHING found. What each function settles of METHOD section 4, where the authors' code errs:

1. k means k, None the whole cluster, whatever the sentence's length: `faster`, `exact`.
2. A token and its distance come from one row of the ranking: `faster` (and `datastore.build`, which sorts them as one).
3. A cluster without entries is not selectable, the next nearest is taken: `clusters_of_sentence`.
4. A type never seen adds nothing; a sentence of such types only is base MT: `clusters_of_sentence`, `fast`, `mixed`.
5. A segment without links shifts nothing: `datastore.build`, which counts entries and not links.
6. All members of a cluster are seen, not the first in the corpus: `entries_of_cluster`.
7. Every function takes the states of a new sentence; nothing is looked up beforehand.
8. Only a store's target_ids are values (so those who make segments leave PAD, BOS and tags out of them), and what
   the search has banned stays banned: `mixed`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .datastore import States, Store, squared, unit


@dataclass(frozen=True)
class Settings:
    """How to search and mix. The metric must be the one the store was built for."""

    k: int | None = 4  # None: the whole cluster, in faster and faster_exact
    c: int = 4  # fast
    temperature: float = 1.0
    lam: float = 0.5
    lam_max: float = 0.9  # distance-aware, in the place of lam, when there is a tau
    tau: float | None = None
    metric: str = "squared"  # or euclidean, cosine
    probe: int = 1  # clusters joined, in faster


class Neighbour(NamedTuple):
    """An entry, its token and its distance d: what the softmax sees."""

    entry: int
    token: int
    distance: float


@dataclass(frozen=True)
class Found:
    """Neighbours in their order, and the smallest distance the lookup saw: of a key, or in faster of a centroid."""

    neighbours: list[Neighbour]
    nearest: float


NOTHING = Found([], math.inf)


def knn(store: Store, state: States, settings: Settings) -> Found:
    """Find the k nearest of all entries (kNN-MT)."""
    return exact(store, set(range(len(store["target_ids"]))), state, settings, bounded(settings))


def fast(store: Store, source_ids: Sequence[int], source_states: States, state: States, settings: Settings) -> Found:
    """Find the k nearest of what the c nearest tokens of each source token's type link to (Fast kNN-MT).

    source_states: (n, d); state: (d,)
    """
    seen: set[int] = set()
    for kind, source_state in zip(source_ids, source_states, strict=True):
        query = queried(source_state, settings)
        rows = [row for row in span(store["type_offsets"], kind) if entries_of_token(store, row)]  # linked at all
        tokens = [(squared(query, store["source_keys"][row]), row) for row in rows]
        for _, row in sorted(tokens)[: settings.c]:
            seen |= entries_of_token(store, row)
    return exact(store, seen, state, settings, bounded(settings))


def fast_clustered(
    store: Store, source_ids: Sequence[int], source_states: States, state: States, settings: Settings
) -> Found:
    """Find the k nearest of all members of the clusters of the sentence (Fast kNN-MT with D_source^cluster)."""
    seen: set[int] = set()
    for cluster in clusters_of_sentence(store, source_ids, source_states, settings):
        seen |= entries_of_cluster(store, cluster)
    return exact(store, seen, state, settings, bounded(settings))


def faster(store: Store, source_ids: Sequence[int], source_states: States, state: States, settings: Settings) -> Found:
    """Find the entries first in the ranking of the nearest cluster, or of several together (Faster kNN-MT, eq. 4)."""
    clusters = nearest_clusters(store, source_ids, source_states, state, settings)[: settings.probe]
    found: dict[int, Neighbour] = {}  # an entry of several clusters counts once
    for s, cluster in clusters:
        ranks = span(store["ranking_offsets"], cluster)
        members = len(entries_of_cluster(store, cluster))
        if len(ranks) < (members if settings.k is None else min(settings.k, members)):
            raise ValueError(f"k={settings.k}, but of cluster {cluster} the store ranks {len(ranks)} of {members}")
        for rank in ranks:
            d = transformed(s, settings) + transformed(float(store["ranking_distances"][rank]), settings)
            entry, token = int(store["ranking_entries"][rank]), int(store["ranking_tokens"][rank])
            if entry not in found or d < found[entry].distance:
                found[entry] = Neighbour(entry, token, d)
    neighbours = sorted(found.values(), key=lambda neighbour: (neighbour.distance, neighbour.entry))[: settings.k]
    return Found(neighbours, transformed(clusters[0][0], settings)) if clusters else NOTHING


def faster_exact(
    store: Store, source_ids: Sequence[int], source_states: States, state: States, settings: Settings
) -> Found:
    """Find the k entries nearest to the state in the nearest cluster (Faster kNN-MT without cached distances)."""
    clusters = nearest_clusters(store, source_ids, source_states, state, settings)
    seen = entries_of_cluster(store, clusters[0][1]) if clusters else set()
    return exact(store, seen, state, settings, settings.k)


def exact(store: Store, entries: set[int], state: States, settings: Settings, k: int | None) -> Found:
    """Return the k of these entries whose keys are nearest, in the order of distance and then of entry."""
    query = queried(state, settings)
    best = sorted((squared(query, store["target_keys"][entry]), entry) for entry in entries)[:k]
    neighbours = [Neighbour(entry, int(store["target_ids"][entry]), transformed(s, settings)) for s, entry in best]
    return Found(neighbours, neighbours[0].distance) if neighbours else NOTHING


def clusters_of_sentence(
    store: Store, source_ids: Sequence[int], source_states: States, settings: Settings
) -> list[int]:
    """Return the distinct clusters nearest to the source tokens, of those of their types that have entries."""
    chosen: set[int] = set()
    for kind, source_state in zip(source_ids, source_states, strict=True):
        query = queried(source_state, settings)
        clusters = [cluster for cluster in span(store["cluster_offsets"], kind) if entries_of_cluster(store, cluster)]
        if clusters:
            _, nearest = min((squared(query, store["cluster_source"][cluster]), cluster) for cluster in clusters)
            chosen.add(nearest)
    return sorted(chosen)


def nearest_clusters(
    store: Store, source_ids: Sequence[int], source_states: States, state: States, settings: Settings
) -> list[tuple[float, int]]:
    """Return the clusters of the sentence by the squared distance of their target centroid, and then by number."""
    query = queried(state, settings)
    clusters = clusters_of_sentence(store, source_ids, source_states, settings)
    return sorted((squared(query, store["cluster_target"][cluster]), cluster) for cluster in clusters)


def entries_of_token(store: Store, row: int) -> set[int]:
    """Return what one stored source token links to."""
    return {int(store["link_entries"][link]) for link in span(store["link_offsets"], row)}


def member(store: Store, place: int) -> int:
    """Return the source token at a place among the clusters' members."""
    return int(store["cluster_members"][place]) if "cluster_members" in store else place


def entries_of_cluster(store: Store, cluster: int) -> set[int]:
    """Return what the source tokens of one cluster link to, each entry once."""
    return {
        entry for row in span(store["cluster_starts"], cluster) for entry in entries_of_token(store, member(store, row))
    }


def span(offsets: NDArray[np.int64], index: int) -> range:
    """Return the rows that belong to one index."""
    return range(int(offsets[index]), int(offsets[index + 1]))


def bounded(settings: Settings) -> int:
    """Return k, which only a single cluster may leave open."""
    if settings.k is None:
        raise ValueError("k=None means the whole cluster: of faster and faster_exact only")
    return settings.k


def queried(state: States, settings: Settings) -> States:
    """Return the state as it is compared with stored ones; it is not rounded as they are."""
    return unit(state) if settings.metric == "cosine" else state


def transformed(s: float, settings: Settings) -> float:
    """Return the distance d of a squared L2 distance s."""
    return {"squared": s, "euclidean": math.sqrt(s), "cosine": s / 2}[settings.metric]


def distribution(
    found: Found, settings: Settings, vocabulary: int, counts: Callable[[int], float] = lambda entry: 1.0
) -> NDArray[np.float64]:
    """Return p_kNN, softmax(−d/T) summed by token: (vocabulary,), and zeros if nothing was found.

    counts: how many times an entry counts: the weight of its memory, and as often as it stands for others
    """
    smallest = min((d for _, _, d in found.neighbours), default=0.0)
    weights = [counts(entry) * math.exp(-(d - smallest) / settings.temperature) for entry, _, d in found.neighbours]
    p = np.zeros(vocabulary)
    for (_, token, _), weight in zip(found.neighbours, weights, strict=True):
        p[token] += weight / sum(weights)
    return p


def weight_of(found: Found, settings: Settings) -> float:
    """Return λ: constant, or λ_max · clamp(1 − d_nearest/τ, 0, 1); 0 if nothing was found."""
    if not found.neighbours:
        return 0.0
    if settings.tau is None:
        return settings.lam
    return settings.lam_max * min(max(1 - found.nearest / settings.tau, 0.0), 1.0)


def mixed(
    p_mt: NDArray[np.floating], found: Found, settings: Settings, banned: Iterable[int] = ()
) -> NDArray[np.float64]:
    """Return λ·p_kNN + (1−λ)·p_MT: (vocabulary,); what is banned gets 0, and the others nothing of its share."""
    lam = weight_of(found, settings)
    p = lam * distribution(found, settings, p_mt.size) + (1 - lam) * p_mt.astype(np.float64)
    p[list(banned)] = 0.0
    return p
