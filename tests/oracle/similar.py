"""The system `similar` in plain Python: its arrays by their definitions, and what a state finds in them."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .datastore import States, Store, squared
from .systems import Found, Neighbour, Settings, queried, span, transformed

K1, B, SHARE = 1.2, 0.75, 512


@dataclass(frozen=True)
class Limits:
    """What a sentence sees: whole segments, the best segments, tokens to choose from, when a type is too common, and
    how many postings are walked.

    by_state: so many times c more are taken by distance alone; farther: what is added to the squared distance of an
    entry whose segment has nothing in common with the sentence; taken: where no c is given, so many for all tokens of a
    sentence, and at least so many for each
    """

    segments: int = 2
    best: int = 64
    offered: int = 64
    common: tuple[int, float] = (1000, 0.25)
    work: int = 1 << 15
    alike: float = 2.0
    by_state: float = 0.5
    taken: tuple[int, int] = (300, 8)
    farther: float = 0.0


def gathered(store: Store, projections: dict[str, NDArray[np.float32]]) -> Store:
    """The arrays of narrow keys, projected by these matrices (d, p), and of the segments' tokens."""
    made: Store = segments_of(store)
    for side, matrix in projections.items():
        keys = store[f"{side}_keys"].astype(np.float64) @ matrix
        low, high = keys.min(axis=0, initial=0), keys.max(axis=0, initial=0)
        halves = side == "target" and matrix.shape[1] % 2 == 0  # two numbers in a byte
        step = max((high - low).max() / (14 if halves else 254), 1e-12)
        numbers = np.rint((keys - (low + high) / 2) / step).astype(np.int8)
        made[f"small_{side}"] = numbers[:, ::2] % 16 + 16 * numbers[:, 1::2] if halves else numbers
        made[f"small_{side}_projection"] = (matrix / step).astype(np.float32)
        made[f"small_{side}_middle"] = ((low + high) / 2 / step).astype(np.float32)
        made[f"small_{side}_step"] = np.array([step], np.float32)
    return made


def segments_of(store: Store) -> Store:
    """The segment of each token, its share in that segment's BM25 score, and the tokens of each segment."""
    count = len(store["target_offsets"]) - 1
    types = [kind for kind in range(len(store["type_offsets"]) - 1) for _ in span(store["type_offsets"], kind)]
    where = []
    for token in range(len(types)):
        entry = store["link_entries"][store["link_offsets"][token]]
        where.append(next(s for s in range(count) if entry in span(store["target_offsets"], s)))
    often, lengths = Counter(zip(types, where, strict=True)), Counter(where)
    shares = []
    for kind, segment in zip(types, where, strict=True):
        spread = len({other for own, other in often if own == kind})
        rarity = math.log(1 + (count - spread + 0.5) / (spread + 0.5))
        brake = K1 * (1 - B + B * lengths[segment] / max(1.0, len(where) / count))
        shares.append(round(SHARE * rarity * (K1 + 1) / (often[kind, segment] + brake)))
    order = sorted(range(len(where)), key=lambda token: where[token])
    return {
        "token_segments": np.array(where, np.int32),
        "token_shares": np.array(shares, np.int16),
        "segment_starts": np.cumsum([0, *(lengths[segment] for segment in range(count))]),
        "segment_tokens": np.array(order, np.int32),
    }


def distance(store: Store, side: str, row: int, state: States) -> float:
    """The squared distance of a state to a narrow key."""
    narrow = state.astype(np.float64) @ store[f"small_{side}_projection"] - store[f"small_{side}_middle"]
    numbers = store[f"small_{side}"][row].tolist()
    if len(numbers) < len(narrow):
        numbers = [(byte >> half & 15 ^ 8) - 8 for byte in numbers for half in (0, 4)]
    return float(store[f"small_{side}_step"][0]) ** 2 * squared(np.array(numbers, np.float64), narrow)


def likeness(store: Store, ids: Sequence[int], hidden: set[int], limits: Limits) -> list[float]:
    """How much each segment is like a sentence, compared with the one that is most like it.

    The tokens of the sentence's types are walked, those of the rarest first, as many as the limit of work allows. The
    best segments by these are scored by all tokens.
    """
    count = len(store["target_offsets"]) - 1
    ranges = [span(store["type_offsets"], kind) for kind in sorted(set(ids))]
    told = [tokens for tokens in ranges if len(tokens) <= max(limits.common[0], limits.common[1] * count)]
    told.sort(key=len)
    every = [token for tokens in told for token in tokens if int(store["token_segments"][token]) not in hidden]
    walked = set([token for tokens in told for token in tokens][: limits.work])
    scores, whole = [0] * count, [0] * count
    for token in every:
        share, segment = int(store["token_shares"][token]), store["token_segments"][token]
        whole[segment] += share
        scores[segment] += share if token in walked else 0
    pool = sorted((-score, number) for number, score in enumerate(scores) if score)[: limits.best]
    for _, number in pool:
        scores[number] = whole[number]
    return [score / max(1, *scores) for score in scores]


def seen(
    store: Store, ids: Sequence[int], states: States, settings: Settings, limits: Limits, removed: NDArray[np.bool_]
) -> dict[int, float]:
    """The entries that a sentence sees, and what is added to the squared distance of each."""
    spans = [span(store["target_offsets"], number) for number in range(len(store["target_offsets"]) - 1)]
    hidden = {number for number, entries in enumerate(spans) if all(removed[entry] for entry in entries)}
    alike = likeness(store, ids, hidden, limits)
    ranked = sorted((-like, number) for number, like in enumerate(alike) if like > 0)
    best = [number for _, number in ranked[: limits.best]]
    entries = {entry for number in best[: limits.segments] for entry in spans[number]}
    c = settings.c or max(limits.taken[1], math.ceil(limits.taken[0] / len(ids)))
    for kind, own in zip(ids, states, strict=True):
        offered = list(span(store["type_offsets"], kind))
        if len(offered) > limits.offered:
            inside = [token for number in best for token in offered if store["token_segments"][token] == number]
            offered = inside[: limits.offered]
        offered = [token for token in offered if int(store["token_segments"][token]) not in hidden]
        far = [distance(store, "source", token, queried(own, settings)) for token in offered]
        typical = max(sum(far) / max(1, len(far)), 1e-6)
        rank = [
            (some / typical + limits.alike * (1 - alike[store["token_segments"][token]]), place)
            for place, (some, token) in enumerate(zip(far, offered, strict=True))
        ]
        nearest = sorted((some, place) for place, some in enumerate(far))
        for _, place in sorted(rank)[:c] + nearest[: math.ceil(limits.by_state * c)]:
            entries |= {int(store["link_entries"][link]) for link in span(store["link_offsets"], offered[place])}
    return {
        entry: limits.farther * (1 - alike[number])
        for number, own in enumerate(spans)
        for entry in own
        if entry in entries and not removed[entry]
    }


def similar(
    store: Store, ids: Sequence[int], states: States, state: States, settings: Settings, limits: Limits,
    removed: NDArray[np.bool_] | None = None,
) -> Found:  # fmt: skip
    """All that the sentence sees, with the distances of the state: in the order of tokens, then entries."""
    removed = np.zeros(len(store["target_ids"]), bool) if removed is None else removed
    found = [
        Neighbour(
            entry,
            int(store["target_ids"][entry]),
            transformed(distance(store, "target", entry, queried(state, settings)) + farther, settings),
        )
        for entry, farther in seen(store, ids, states, settings, limits, removed).items()
    ]
    found.sort(key=lambda neighbour: (neighbour.token, neighbour.entry))
    return Found(found, min((neighbour.distance for neighbour in found), default=math.inf))
