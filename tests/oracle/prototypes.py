"""Prototypes in plain NumPy: how they are gathered from a store's links, and how a state is looked up in them."""

import math
from collections.abc import Sequence

import numpy as np

from .datastore import States, Store, squared
from .systems import Found, Neighbour, Settings, queried, span, transformed

BYTES = 254  # steps of a number that is kept in a byte


def gathered(store: Store, parts: int) -> Store:
    """The arrays of prototypes: the entries of a type and a token, dealt into some parts by their numbers."""
    source, target, tokens, counts, entries, kinds = [], [], [], [], [], []
    all_members: list[int] = []
    for kind in range(len(store["type_offsets"]) - 1):
        groups: dict[tuple[int, int], dict[int, int]] = {}
        for row in span(store["type_offsets"], kind):
            for link in span(store["link_offsets"], row):
                entry = int(store["link_entries"][link])
                groups.setdefault((int(store["target_ids"][entry]), entry % parts), {}).setdefault(entry, row)
        for (token, _), members in sorted(groups.items()):
            source.append(store["source_keys"][list(members.values())].astype(np.float32).mean(axis=0))
            target.append(store["target_keys"][list(members)].astype(np.float32).mean(axis=0))
            tokens.append(token)
            counts.append(len(members))
            all_members += members
            entries.append([*sorted(members), *[min(members)] * 3][:3])
        kinds.append(len(tokens))
    arrays: Store = {
        "proto_offsets": np.array([0, *kinds]),
        "proto_tokens": np.array(tokens, np.int32),
        "proto_counts": np.array(counts, np.int32),
        "proto_members": np.array(all_members, np.int32),
        "proto_entries": np.array(entries, np.int32).reshape(-1, 3),
    }
    for side, means in (("source", source), ("target", target)):
        states = np.array(means, np.float32).reshape(len(tokens), store["target_keys"].shape[1])
        low, high = states.min(axis=0, initial=0), states.max(axis=0, initial=0)
        middle, step = (low + high) / 2, np.maximum((high - low) / BYTES, 1e-12)
        whole = np.rint((states - middle) / step).astype(np.int8)
        arrays[f"proto_{side}"] = whole
        arrays[f"proto_{side}_steps"] = np.stack((middle, step)).astype(np.float32)
        arrays[f"proto_{side}_norms"] = np.square(whole * step + middle).sum(axis=1).astype(np.float32)
    return arrays


def means(store: Store, side: str) -> States:
    """The prototypes' means as they are kept."""
    middle, step = store[f"proto_{side}_steps"]
    kept: States = store[f"proto_{side}"] * step + middle
    return kept


def proto(store: Store, ids: Sequence[int], states: States, state: States, settings: Settings) -> Found:
    """Prototypes: the c nearest of each source token's type by source means, then the k best by log count - d/T.

    The distances given back have the counts in them, d - T·log count, so that their softmax is the distribution.
    """
    source, target = means(store, "source"), means(store, "target")
    chosen: set[int] = set()
    for kind, own in zip(ids, states, strict=True):
        ranked = sorted((squared(source[n], queried(own, settings)), n) for n in span(store["proto_offsets"], kind))
        chosen |= {number for _, number in ranked[: settings.c]}
    scored = []
    nearest = math.inf
    for number in chosen:
        distance = transformed(squared(target[number], queried(state, settings)), settings)
        scored.append((distance - settings.temperature * math.log(store["proto_counts"][number]), number, distance))
    best = sorted(scored)[: settings.k]
    nearest = min((distance for _, _, distance in best), default=math.inf)
    return Found(
        [
            Neighbour(int(store["proto_entries"][number, 0]), int(store["proto_tokens"][number]), shifted)
            for shifted, number, _ in best
        ],
        nearest,
    )
