"""Dev sets, and what of the store their segments are translated without.

Without a dev set, segments of the store itself are held out in two ways: some from all over it, without what the store
has of these very texts, like new strings of a known project; and some of whole projects of which nothing is used, like
strings of an unknown project. Settings tuned on the first alone trust the store too much for the second.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.overlap import overlaps

HELD_OUT = 200  # segments of each kind
GROUPS = 3  # projects held out in turn, the largest
TOO_LARGE = 0.8  # of the store's segments: without such a group hardly anything is left
BLOCKS = 5  # that such a group is cut into
_PLACE = re.compile(r"[:#][^:#/\\]*$")  # the line or unit at the end of an origin


@dataclass(frozen=True)
class Fold:
    """Segments, and the numbers of the store's segments that are left out while they are translated."""

    segments: Sequence[Segment]
    left_out: frozenset[int] = frozenset()


@dataclass(frozen=True)
class DevSet:
    """Segments that are scored together; those of a fold are translated without the same."""

    name: str
    folds: tuple[Fold, ...]

    def __len__(self) -> int:
        return sum(len(fold.segments) for fold in self.folds)


def hold_out(store: Datastore) -> list[DevSet]:
    """Segments of a known project, and of unknown ones."""
    every = list(store.numbered())
    known = _spread(every, HELD_OUT)
    groups = sorted(_groups(every), key=len, reverse=True)[:GROUPS]
    some = [(group, _spread(group, HELD_OUT // len(groups))) for group in groups]
    return [
        DevSet("known project", (_fold(store, known, []),)),
        DevSet("unknown project", tuple(_fold(store, chosen, group) for group, chosen in some)),
    ]


def _fold(store: Datastore, chosen: list[tuple[int, Segment]], group: list[tuple[int, Segment]]) -> Fold:
    """Segments without their group, and without what else the store has of their texts."""
    segments = [segment for _, segment in chosen]
    own = overlaps(store, [segment.source for segment in segments]).segments
    return Fold(segments, own | {number for number, _ in (*chosen, *group)})


def _spread(segments: list[tuple[int, Segment]], count: int) -> list[tuple[int, Segment]]:
    """At most `count` usable segments, evenly spaced."""
    usable = [one for one in segments if one[1].source.strip() and one[1].target.strip()]
    return usable[:: max(1, len(usable) // max(1, count))][:count]


def _groups(every: list[tuple[int, Segment]]) -> list[list[tuple[int, Segment]]]:
    """The store's segments by project: by the first folder or file where their paths differ. A project that is nearly
    all of the store is cut into consecutive blocks."""
    places = [PurePath(_PLACE.sub("", segment.origin)).parts for _, segment in every]
    depth = 0
    while len(heads := {place[: depth + 1] for place in places}) == 1 and depth < len(next(iter(heads))):
        depth += 1
    by_place: dict[tuple[str, ...], list[tuple[int, Segment]]] = defaultdict(list)
    for place, one in zip(places, every, strict=True):
        by_place[place[: depth + 1]].append(one)
    groups = []
    for group in by_place.values():
        size = -(-len(group) // BLOCKS) if len(group) > TOO_LARGE * len(every) else len(group)
        groups += [group[start : start + size] for start in range(0, len(group), size)]
    return groups
