"""What is in a store, for people: counts, sizes, frequencies."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from knnmt.store.store import Store


@dataclass(frozen=True)
class Description:
    """A store in numbers; `frequencies` counts types by their number of tokens: up to 1, 10, 100, …"""

    path: str
    model: str
    languages: str
    counts: dict[str, int]
    bytes: dict[str, int]  # by file, the largest first
    settings: dict[str, object]
    scale: float
    dropped: dict[str, int]
    frequent_types: dict[str, int]
    frequencies: dict[str, int]


def describe(store: Store) -> Description:
    """Describe a store; only its manifest is read, and the offsets of its types or clusters."""
    manifest, sizes = store.manifest, store.sizes
    counts = {"parts": len(store.parts)} if len(store.parts) > 1 else {}
    counts |= {name: sizes.get(name, 0) for name in ("segments", "entries", "tokens", "links", "clusters", "ranked")}
    counts |= {"taught since": len(store.lessons), "removed since": len(store.lessons.removed)}
    files = Counter(aligner=manifest.aligner.size) if manifest.aligner is not None else Counter[str]()
    for part in store.parts:
        files.update({name: file.size for name, file in part.files.items()})
    return Description(
        path=str(store.path),
        model=manifest.model,
        languages=manifest.languages,
        counts=counts,
        bytes=dict(files.most_common()),
        settings=manifest.settings,
        scale=manifest.scale,
        dropped=manifest.dropped,
        frequent_types={kind.piece: kind.tokens for kind in manifest.frequent_types},
        frequencies=_frequencies(store),
    )


def _frequencies(store: Store) -> dict[str, int]:
    """How many types have up to 1, 10, 100, … stored tokens; nothing for a store without tokens."""
    if not store.provides("type_offsets"):
        return {}
    tokens = np.sum([np.diff(part["type_offsets"]) for part in store.parts], axis=0)
    tokens = tokens[tokens > 0]
    bounds = 10 ** np.arange(len(str(int(tokens.max(initial=1)))) + 1)
    return {
        f"{low + 1:,}–{high:,}" if high > 1 else "1": int(((tokens > low) & (tokens <= high)).sum())
        for low, high in zip([0, *bounds.tolist()], bounds.tolist(), strict=False)
    }
