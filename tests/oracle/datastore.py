"""A datastore in plain Python: from segments to the arrays of a store, by their definitions. Slow on purpose.

S segments, E entries (target tokens in corpus order), N stored source tokens (those with a link), L links,
V source types, C clusters, R ranked entries, d width. Every sum is in float64, over values already rounded to
float16; that sum is exact, so no order of adding can change a centroid.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Store = dict[str, NDArray[Any]]
States = NDArray[np.floating[Any]]
Place = tuple[int, int]  # (segment, position)

END = 0
# 105 = 3·5·7: the mean of up to seven states on this grid is exact in float16, and a squared distance in float32
# (up to 8 wide), so that a tie is a tie in every arithmetic
UNIT = 105 / 128
EXACT = 7


class Segment(NamedTuple):
    """One pair of training: n source and m target tokens, and the positions (source, target) that are linked.

    source_states: (n, d); target_states: (m, d), the state at j being the one that predicts target token j
    """

    source_ids: Sequence[int]
    target_ids: Sequence[int]
    links: Sequence[tuple[int, int]]
    source_states: States
    target_states: States


class SourceToken(NamedTuple):
    """A source token that has a link; its first four fields are the order of the store's rows."""

    type: int
    cluster: int
    segment: int
    position: int
    entries: list[int]
    key: States


def build(
    segments: Sequence[Segment], assign: Mapping[Place, int], vocabulary: int, k_max: int, metric: str = "squared"
) -> Store:
    """Return the arrays of the store of these segments; `cosine` stores unit vectors.

    assign: the cluster of each stored source token, counted inside its type. A number left out is a cluster
    without tokens: its centroids are zeros, and nothing may select it.
    """
    width = segments[0].target_states.shape[1]
    stored = unit if metric == "cosine" else as_is

    target_ids: list[int] = []
    target_keys: list[States] = []
    target_offsets = [0]
    tokens: list[SourceToken] = []
    for number, segment in enumerate(segments):
        first = len(target_ids)
        for token, state in zip(segment.target_ids, segment.target_states, strict=True):
            target_ids.append(token)
            target_keys.append(half(stored(state)))
        target_offsets.append(len(target_ids))
        for i, (kind, state) in enumerate(zip(segment.source_ids, segment.source_states, strict=True)):
            entries = sorted({first + j for other, j in segment.links if other == i})
            if entries:
                tokens.append(SourceToken(kind, assign[number, i], number, i, entries, half(stored(state))))
    tokens.sort(key=lambda token: token[:4])

    clusters: list[tuple[int, int]] = []
    for kind in range(vocabulary):
        numbers = [token.cluster for token in tokens if token.type == kind]
        clusters += [(kind, number) for number in range(max(numbers, default=-1) + 1)]
    sources, targets, rankings = [], [], []
    for cluster in clusters:
        members = [token for token in tokens if token[:2] == cluster]
        distinct = sorted({entry for token in members for entry in token.entries})
        source = centroid([token.key for token in members], width, stored)
        target = centroid([target_keys[entry] for entry in distinct], width, stored)
        ranking = sorted((np.float32(squared(target_keys[entry], target)), entry) for entry in distinct)
        sources.append(source)
        targets.append(target)
        rankings.append(ranking[:k_max])
    ranked = [pair for ranking in rankings for pair in ranking]

    return {
        "target_ids": np.array(target_ids, np.int32),
        "target_offsets": np.array(target_offsets, np.int64),
        "target_keys": rows(target_keys, width),
        "type_offsets": offsets(sum(token.type == kind for token in tokens) for kind in range(vocabulary)),
        "link_offsets": offsets(len(token.entries) for token in tokens),
        "link_entries": np.array([entry for token in tokens for entry in token.entries], np.int32),
        "source_keys": rows([token.key for token in tokens], width),
        "cluster_offsets": offsets(sum(owner == kind for owner, _ in clusters) for kind in range(vocabulary)),
        "cluster_starts": offsets(sum(token[:2] == cluster for token in tokens) for cluster in clusters),
        "cluster_source": rows(sources, width),
        "cluster_target": rows(targets, width),
        "ranking_offsets": offsets(len(ranking) for ranking in rankings),
        "ranking_entries": np.array([entry for _, entry in ranked], np.int32),
        "ranking_tokens": np.array([target_ids[entry] for _, entry in ranked], np.int32),
        "ranking_distances": np.array([distance for distance, _ in ranked], np.float32),
    }


def squared(one: States, other: States) -> float:
    """Return the squared L2 distance."""
    return float(np.sum((one.astype(np.float64) - other.astype(np.float64)) ** 2))


def unit(state: States) -> States:
    """Return the state at length 1; a state of length 0 stays."""
    wide = state.astype(np.float64)
    length = math.sqrt(np.sum(wide**2))
    return wide / length if length else wide


def as_is(state: States) -> States:
    """Return the state, for the metrics that look at its length too."""
    return state


def half(state: States) -> States:
    """Return the state as it is stored."""
    return state.astype(np.float16)


def centroid(keys: list[States], width: int, stored: Callable[[States], States]) -> States:
    """Return the mean of stored keys, as it is stored; of none, zeros."""
    total = sum((key.astype(np.float64) for key in keys), np.zeros(width))
    return half(stored(total / max(len(keys), 1)))


def offsets(counts: Iterable[int]) -> NDArray[np.int64]:
    """Return where each count begins, and their sum at the end."""
    return np.array([0, *accumulate(counts)], np.int64)


def rows(keys: list[States], width: int) -> NDArray[np.float16]:
    """Return keys as one table, which may be empty."""
    return np.array(keys, np.float16).reshape(-1, width)


def random_states(rng: np.random.Generator, count: int, width: int) -> NDArray[np.float32]:
    """Draw states from a coarse grid: equal ones, and equal distances, are common."""
    return (UNIT * rng.integers(-1, 2, (count, width))).astype(np.float32)


def random_segments(
    rng: np.random.Generator, count: int = 5, types: int = 3, length: int = 5, width: int = 2
) -> list[Segment]:
    """Draw segments over the ids 1..types that end in END, some without links, with repeated links and unlinked tokens.

    Usable from hypothesis: `random_segments(np.random.default_rng(seed))`, with the seed drawn.
    """
    segments = []
    for _ in range(count):
        source, target = ([*rng.integers(1, types + 1, rng.integers(length)).tolist(), END] for _ in range(2))
        n, m = len(source), len(target)
        total = 0 if rng.random() < 0.2 else n + m
        links = [(int(rng.integers(n)), int(rng.integers(m))) for _ in range(total)]
        segments.append(Segment(source, target, links, random_states(rng, n, width), random_states(rng, m, width)))
    return segments


def random_clusters(rng: np.random.Generator, segments: Sequence[Segment], size: int = EXACT) -> dict[Place, int]:
    """Draw the cluster of each stored source token; none gets more than `size` tokens or, beyond its first, entries."""
    assign: dict[Place, int] = {}
    held: dict[int, list[tuple[int, set[Place]]]] = {}  # of each type's clusters: tokens, and what they link to
    for number, segment in enumerate(segments):
        for i, kind in enumerate(segment.source_ids):
            linked = {(number, j) for other, j in segment.links if other == i}
            if linked:
                clusters = held.setdefault(kind, [])
                roomy = [
                    cluster
                    for cluster, (tokens, entries) in enumerate(clusters)
                    if tokens < size and len(entries | linked) <= size
                ]
                chosen = int(rng.choice([*roomy, len(clusters)]))
                if chosen == len(clusters):
                    clusters.append((0, set()))
                tokens, entries = clusters[chosen]
                clusters[chosen] = (tokens + 1, entries | linked)
                assign[number, i] = chosen
    return assign


def random_sentence(
    rng: np.random.Generator, types: int = 3, length: int = 5, width: int = 2
) -> tuple[list[int], NDArray[np.float32]]:
    """Draw a source to translate, ids and states: over one type more, never seen, which at times is all there is."""
    ids = rng.integers(1, types + 2, rng.integers(length)).tolist()
    source = [types + 1] if rng.random() < 0.1 else [*ids, END]
    return source, random_states(rng, len(source), width)
