"""What is in a store, for people: counts, sizes, frequencies."""

from dataclasses import dataclass

import numpy as np

from knnmt.store.store import Datastore


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


def describe(store: Datastore) -> Description:
    """Describe a store; only its manifest is read, and the offsets of its types or clusters."""
    manifest, part = store.manifest, store.part
    counts = {name: part.sizes[name] for name in ("segments", "entries", "tokens", "links", "clusters", "ranked")}
    counts |= {"taught since": len(store.lessons), "removed since": len(store.lessons.removed)}
    files = sorted(part.files.items(), key=lambda item: -item[1].size)
    return Description(
        path=str(store.path),
        model=manifest.model,
        languages=manifest.languages,
        counts=counts,
        bytes={name: file.size for name, file in files},
        settings=manifest.settings,
        scale=manifest.scale,
        dropped=manifest.dropped,
        frequent_types={kind.piece: kind.tokens for kind in manifest.frequent_types},
        frequencies=_frequencies(store),
    )


def _frequencies(store: Datastore) -> dict[str, int]:
    """How many types have up to 1, 10, 100, … stored tokens; nothing for a store without tokens."""
    if "type_offsets" not in store.part:
        return {}
    tokens = np.diff(store.part["type_offsets"])
    tokens = tokens[tokens > 0]
    bounds = 10 ** np.arange(len(str(int(tokens.max(initial=1)))) + 1)
    return {
        f"{low + 1:,}–{high:,}" if high > 1 else "1": int(((tokens > low) & (tokens <= high)).sum())
        for low, high in zip([0, *bounds.tolist()], bounds.tolist(), strict=False)
    }
