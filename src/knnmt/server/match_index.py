"""Fuzzy matches in the memories of a server. Sealed parts are indexed once, what was taught whenever it changes."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from knnmt.corpus import Segment
from knnmt.server.desks import Memory
from knnmt.store.digests import one_line
from knnmt.store.manifest import Manifest
from knnmt.store.store import Store
from knnmt.translate.fuzzy import FuzzyIndex

MOST = 500_000  # segments of a memory that are indexed: of a larger one, only exact matches and lessons are found
REMOVED = 100  # matches that are looked at beyond those asked for, in case they were removed


@dataclass(frozen=True)
class FoundMatch:
    """A segment of a memory whose source is like a text; score 1: the very same."""

    score: float
    segment: Segment
    memory: str


class MatchIndex:
    """The indexes of all memories, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sealed: dict[str, tuple[Manifest, FuzzyIndex | None]] = {}
        self._taught: dict[str, tuple[Manifest, int, FuzzyIndex]] = {}

    def find(self, memories: Sequence[Memory], text: str, limit: int, least: float) -> list[FoundMatch]:
        """The best matches of a text in all memories, exact ones first; of equal scores by the order of memories."""
        found = [match for memory in memories for match in self._in_memory(memory, text, limit, least)]
        return sorted(found, key=lambda match: -match.score)[:limit]

    def _in_memory(self, memory: Memory, text: str, limit: int, least: float) -> list[FoundMatch]:
        wanted = one_line(text)
        while True:
            store = memory.store
            manifest = store.manifest
            found = [FoundMatch(1.0, _named(*match), memory.name) for match in store.matches(wanted)[:limit]]
            for index in self._indexes(memory.name, store):
                numbers, scores = next(index.search([text], least))
                some = zip(numbers[: limit + REMOVED].tolist(), scores.tolist(), strict=False)
                for number, score in some:
                    segment = store.segment(number)
                    if number not in store.removed and one_line(segment.source) != wanted:
                        found.append(FoundMatch(score, _named(number, segment), memory.name))
            if store.manifest is manifest:  # else a compact gave all segments other numbers meanwhile
                return sorted(found, key=lambda match: -match.score)[:limit]

    def _indexes(self, name: str, store: Store) -> list[FuzzyIndex]:
        """The indexes of a store: of its parts, and of what was taught since."""
        with self._lock:
            manifest, version = store.manifest, store.version
            known, sealed = self._sealed.get(name, (None, None))
            if known is not manifest:
                sealed = FuzzyIndex(store, store.sealed()) if store.sizes["segments"] <= MOST else None
                self._sealed[name] = manifest, sealed
            kept = self._taught.get(name)
            if kept is None or kept[0] is not manifest or kept[1] != version:
                kept = manifest, version, FuzzyIndex(store, store.unsealed())
                self._taught[name] = kept
            return [index for index in (kept[2], sealed) if index is not None]


def _named(number: int, segment: Segment) -> Segment:
    return segment if segment.id else replace(segment, id=f"#{number}")
