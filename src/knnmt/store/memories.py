"""Several stores opened together, as one: a company's memory, say, and behind it a project's, which learns.

Their parts follow each other in the order of the stores, and are numbered as those of one store are. What is taught and
removed goes to the last store. Ids are looked up in the last store first. A weight multiplies the share that a store's
entries have in p_kNN; a store of weight 0 is not searched, and its numbers are behind all others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.align.fastalign import Aligner
from knnmt.corpus.segment import Segment
from knnmt.csr import Int64
from knnmt.errors import DataError, StoreError, UsageError
from knnmt.model.represent import StateModel
from knnmt.search.pq import decode
from knnmt.store.entries import scale_of, scale_pairs
from knnmt.store.manifest import Manifest
from knnmt.store.numbering import Match, Numbering
from knnmt.store.part import Part
from knnmt.store.store import Added, Store

# what the stores must have in common, and what an error says of it
SAME = {"model_fingerprint": "model", "tokenizer_fingerprint": "languages", "key": "key", "metric": "metric"}
Paths = Collection[str | Path] | Mapping[Any, float]
"""Paths of stores, or a mapping from each path to the store's weight."""
ROOM = 1 << 40  # numbers for the lessons of each store: what one is taught must not move the numbers of another's


class Memories(Numbering):
    """Stores that were made with one model, read as one store of all their parts and lessons.

    stores: all of them, `weights` that of each; searched: those whose weight is not 0; names: of the stores, by default
    those of their folders
    """

    def __init__(self, paths: Paths, names: Sequence[str] | None = None) -> None:
        self.paths = [Path(path) for path in paths]
        if len({path.resolve() for path in self.paths}) < len(self.paths):
            raise StoreError(f"the same store is given twice: {', '.join(map(str, self.paths))}")
        self.weights = _weights(paths)
        self.memory_names = folder_names(self.paths) if names is None else tuple(names)
        self._open()

    @classmethod
    def open(cls, paths: Paths) -> "Memories":
        """Open stores together, each with its weight if a mapping is given; the last one learns."""
        return cls(paths)

    def _open(self) -> None:
        """Open all stores, each with the numbers behind those of the one before."""
        stores: dict[Path, Store] = {}
        first = 0, 0
        for place in sorted(range(len(self.paths)), key=lambda place: self.weights[place] == 0):
            store = Store(self.paths[place], first=first, lessons_from=(place + 1) * ROOM)
            stores[self.paths[place]] = store
            _expect_alike(next(iter(stores.values())), store)
            first = first[0] + store.sizes["segments"], first[1] + store.sizes["entries"]
        self.stores = tuple(stores[path] for path in self.paths)
        weighed = [(store, weight) for store, weight in zip(self.stores, self.weights, strict=True) if weight]
        self.searched = tuple(store for store, _ in weighed)
        self.part_weights = tuple(weight for store, weight in weighed for _ in store.parts)
        self._lay_out(
            " + ".join(map(str, self.paths)),
            [part for store in self.searched for part in store.parts],
            [store.lessons for store in self.searched],
        )
        self._opened = [store.parts for store in self.stores]
        self.path, self.scale = self.last.path, self._scale()
        self.manifest = self._manifest()

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    @property
    def last(self) -> Store:
        """The store that learns."""
        return self.stores[-1]

    def _scale(self) -> float:
        """The scale that one store of all entries would have: of the same pairs of entries.

        Exact where the stores hold keys; near to it where those are quantized. Stores without any, as those that serve
        one system only, give the mean of their scales, each as often as it has entries.
        """
        if len(self.searched) == 1:
            return self.searched[0].scale
        if not self.provides("target_keys"):
            scales, entries = zip(*((store.scale, store.sizes["entries"]) for store in self.searched), strict=True)
            return float(np.average(scales, weights=entries))
        pairs = scale_pairs(self._ends[1], self.last.manifest.settings.get("seed", 0))
        keys = np.empty((*pairs.shape, self.sizes["width"]), np.float32)
        index = np.searchsorted(self._entry_starts, pairs, side="right") - 1
        for number, part in enumerate(self.parts):
            keys[index == number] = _keys(part, pairs[index == number] - part.first_entry)
        return scale_of(keys)

    def _manifest(self) -> Manifest:
        """That of the last store, with the scale of all, and rankings as short as the shortest."""
        made = self.last.manifest
        shortest = [k for store in self.searched if (k := store.manifest.settings.get("k_max")) is not None]
        settings = made.settings | ({"k_max": min(shortest)} if shortest else {})
        return made.model_copy(update={"scale": self.scale, "settings": settings})

    def memory_of(self, number: int) -> str:
        """The name of the store that a segment belongs to."""
        for store, name in zip(self.stores, self.memory_names, strict=True):
            if store.part_of(number) is not None or store.lessons.at(number) is not None:
                return name
        raise IndexError(f"{self.name} has no segment of number {number}")

    def find(self, name: str) -> Segment | None:
        """The segment of an id, of the last store that has it."""
        return next((found for store in self.stores[::-1] if (found := store.find(name)) is not None), None)

    def matches(self, source: str) -> list[Match]:
        """The segments with this very source text, the one that counts first: those of the last store before others."""
        return [match for store in self.searched[::-1] for match in store.matches(source)]

    def check(self, model: StateModel) -> None:
        """Refuse a model that the stores were not made with."""
        for store in self.stores:
            store.check(model)

    @property
    def learns(self) -> bool:
        """Whether segments can be added to the last store."""
        return self.last.learns

    def aligner(self) -> Aligner:
        """The alignment model of the last store."""
        return self.last.aligner()

    def add(
        self, segments: Sequence[Segment], model: StateModel, *, bad: Callable[[DataError], None] | None = None
    ) -> Added:
        """Teach segments to the last store."""
        added = self.last.add(segments, model, bad=bad)
        self._follow()
        return added

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove segments of the last store by their ids. Gives the ids that were there."""
        removed = self.last.remove(names)
        self._follow()
        return removed

    def refresh(self) -> bool:
        """Take up what others have written to any of the stores; says whether there was anything."""
        changed = [store.refresh() for store in self.stores]
        self._follow()
        return any(changed)

    def _follow(self) -> None:
        """Be what the stores are by now. Where one has other parts, the numbers of those behind it are others, too."""
        if any(store.parts is not before for store, before in zip(self.stores, self._opened, strict=True)):
            self._open()
        elif any(store.lessons is not known for store, known in zip(self.searched, self.taught, strict=True)):
            self._lay_out(self.name, self.parts, [store.lessons for store in self.searched])  # after a repair

    def verify(self) -> Iterator[str]:
        """Read everything and compare it with what was sealed; names each file when it is found sound."""
        for store in self.stores:
            yield from (str(store.path / name) for name in store.verify())


def _expect_alike(one: Store, other: Store) -> None:
    """Refuse stores whose keys cannot be compared."""
    for name, shown in SAME.items():
        if getattr(one.manifest, name) != getattr(other.manifest, name):
            what, values = name.removesuffix("_fingerprint"), [getattr(each.manifest, shown) for each in (one, other)]
            raise StoreError(
                f"{one.path} and {other.path} cannot be opened together: their {what}s differ ({' and '.join(values)})"
            )


def _weights(paths: Paths) -> tuple[float, ...]:
    """The weight of each store; 1 where none is given."""
    if not isinstance(paths, Mapping):
        return (1.0,) * len(paths)
    for path, weight in paths.items():
        if not (weight >= 0 and isfinite(weight)):
            raise UsageError(f"the weight of {path} is {weight}: a weight is 0 or a positive number")
    if not any(paths.values()):
        raise UsageError("every store has weight 0: give at least one of them a positive weight")
    return tuple(paths.values())


def folder_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The names of the stores' folders, each with as much of its path as tells all of them apart."""
    parts = [path.resolve().parts for path in paths]
    several = (tuple("/".join(each[-count:]) for each in parts) for count in range(1, max(map(len, parts)) + 1))
    return next(names for names in several if len(set(names)) == len(names))


def _keys(part: Part, rows: Int64) -> NDArray[np.float32]:
    """The keys of some entries of a part, as near as it keeps them. (R, d)."""
    if "target_keys" in part:
        found: NDArray[np.float32] = part["target_keys"][rows].astype(np.float32)
        return found
    return decode(torch.from_numpy(part["target_codes"][rows]), torch.from_numpy(part["target_codebooks"])).numpy()


AnyStore = Store | Memories
