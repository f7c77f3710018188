"""Segments and entries by their numbers: parts one after the other, and what was taught behind them.

A tie between two entries goes to the lower number, so the order of the parts is that of the corpus. This is all that
reading needs to know of parts and lessons: it is the same for one store and for several that are opened together.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.corpus.segment import Segment
from knnmt.csr import Int64
from knnmt.model.represent import StateModel
from knnmt.store.lessons import LessonPart, Lessons
from knnmt.store.manifest import Manifest
from knnmt.store.part import Part, Side
from knnmt.store.schema import SHARED


class Match(NamedTuple):
    """A segment with the very text that was asked for, and its number."""

    number: int
    segment: Segment


class Numbering(ABC):
    """Parts, and the lessons of one or several journals: what a search reads. `name` is what errors call it.

    path, manifest: of the store, or of the one of several that learns; scale: of the keys of all parts; sizes: of all
    parts together, sums but for vocabularies and widths, which parts share; memory_names: of all stores, the one that
    learns last; part_weights: how much each part's entries count in p_kNN, () where all count the same
    """

    path: Path
    manifest: Manifest
    scale: float
    part_weights: tuple[float, ...] = ()

    @abstractmethod
    def check(self, model: StateModel) -> None:
        """Refuse a model that this was not made with: its states would mean nothing here."""

    @abstractmethod
    def refresh(self) -> bool:
        """Take up what others have written since this was opened; says whether there was anything."""

    @abstractmethod
    def memory_of(self, number: int) -> str:
        """The name of the store that a segment belongs to."""

    def _lay_out(self, name: str, parts: Sequence[Part], taught: Sequence[Lessons]) -> None:
        """Take parts that follow each other in numbers, and lessons that are numbered behind them."""
        self.name, self.parts, self.taught = name, tuple(parts), tuple(taught)
        self._segment_starts = [part.first_segment for part in self.parts]
        self._entry_starts = np.array([part.first_entry for part in self.parts])
        names = dict.fromkeys(name for part in self.parts for name in part.sizes)
        several = {name: [part.sizes.get(name, 0) for part in self.parts] for name in names}
        self.sizes = {name: max(each) if name in SHARED else sum(each) for name, each in several.items()}
        last = self.parts[-1]
        self._ends = last.first_segment + last.sizes["segments"], last.first_entry + last.sizes["entries"]
        self._lesson_part: tuple[int, LessonPart | None] = -1, None

    def provides(self, name: str) -> bool:
        """Whether every part has an array, or its quantized form."""
        return all(part.provides(name) for part in self.parts)

    # ----------------------------------------------------------------------------------------------- what was taught

    @property
    def version(self) -> int:
        """Of what was taught and removed, for whoever keeps something derived from it."""
        return sum(lessons.version for lessons in self.taught)

    @property
    def removed(self) -> set[int]:
        """The numbers of the parts' segments that were removed."""
        return set[int]().union(*(lessons.removed for lessons in self.taught))

    @property
    def folded(self) -> set[int]:
        """The numbers of the parts' segments that are lessons, and are searched as such."""
        return set[int]().union(*(lessons.folded for lessons in self.taught))

    @property
    def lesson_part(self) -> LessonPart | None:
        """What was taught, in arrays."""
        version, part = self._lesson_part
        if version != self.version:
            version = self.version
            rows = [
                (one, *(lessons.first(one) if one.folded is None else (one.folded, self._first_entry(one.folded))))
                for lessons in self.taught
                for one in list(lessons.taught.values())
            ]
            part = LessonPart(rows, self.parts[0].sizes["source_vocabulary"]) if rows else None
            self._lesson_part = version, part
        return part

    def recent(self, count: int | None = None) -> list[Segment]:
        """The segments that were taught, the newest first."""
        every = [lesson.segment for lessons in self.taught for lesson in list(lessons.taught.values())]
        return every[::-1][:count]

    def sealed(self) -> Iterator[tuple[int, Segment]]:
        """The segments of the parts with their numbers, those that were removed too."""
        for part in self.parts:
            for number in range(part.sizes["segments"]):
                yield part.first_segment + number, part.segment(number)

    def unsealed(self) -> list[tuple[int, Segment]]:
        """The segments that were taught and are in no part, with their numbers."""
        return [(lessons.number(one), one.segment) for lessons in self.taught for one in list(lessons.unfolded)]

    # ---------------------------------------------------------------------------------------------------- by number

    def part_of(self, number: int) -> Part | None:
        """The part that has a segment; None for those that were taught."""
        if not self._segment_starts[0] <= number < self._ends[0]:
            return None
        return self.parts[bisect_right(self._segment_starts, number) - 1]

    def _first_entry(self, number: int) -> int:
        """The number of the first entry of a part's segment."""
        part = self.part_of(number)
        assert part is not None
        return part.first_entry + int(part["target_offsets"][number - part.first_segment])

    def __len__(self) -> int:
        return self.sizes["segments"] + sum(len(lessons.unfolded) - len(lessons.removed) for lessons in self.taught)

    def segment(self, number: int) -> Segment:
        """A segment, by its number from 0; those taught come behind the parts'."""
        part = self.part_of(number)
        if part is not None:
            return part.segment(number - part.first_segment)
        for lessons in self.taught:
            if (lesson := lessons.at(number)) is not None:
                return lesson.segment
        raise IndexError(f"{self.name} has {len(self):,} segments, and none of number {number}")

    def target_ids(self, number: int) -> list[int]:
        """The target tokens of a segment, `</s>` at the end."""
        part = self.part_of(number)
        if part is not None:
            return part.target_ids(number - part.first_segment)
        ids: list[int] = next(found.target_ids.tolist() for one in self.taught if (found := one.at(number)) is not None)
        return ids

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        """All segments that were not removed, in order, with their numbers."""
        removed = self.removed
        taught = [(lessons.number(one), one.segment) for lessons in self.taught for one in lessons.unfolded]
        for part in self.parts:
            for number in range(part.sizes["segments"]):
                if part.first_segment + number not in removed:
                    yield part.first_segment + number, part.segment(number)
        yield from taught

    def segments(self) -> Iterator[Segment]:
        """All that were not removed, in order, each with an id: its own, or `#` and its number."""
        for number, segment in self.numbered():
            yield segment if segment.id else replace(segment, id=f"#{number}")

    def where(self, entries: NDArray[Any]) -> tuple[Int64, Int64]:
        """The segment of each entry, and its place among the segment's target tokens; -1 where there is no entry."""
        segments, places = np.full(entries.shape, -1, np.int64), np.full(entries.shape, -1, np.int64)
        index = np.searchsorted(self._entry_starts, entries, side="right") - 1
        stored = (index >= 0) & (entries < self._ends[1])
        for number in np.unique(index[stored]).tolist():
            part, chosen = self.parts[number], stored & (index == number)
            local, offsets = entries[chosen] - part.first_entry, part["target_offsets"]
            found = np.searchsorted(offsets, local, side="right") - 1
            segments[chosen], places[chosen] = found + part.first_segment, local - offsets[found]
        if self.lesson_part is not None and not stored.all():
            segments[~stored], places[~stored] = self.lesson_part.where(entries[~stored])
        return segments, places

    # ------------------------------------------------------------------------------------------------ by text and id

    def matches(self, source: str) -> list[Match]:
        """The segments with this very source text, the one that counts first: what was taught, the newest first; then
        those whose target stands there most often, of several the last."""
        taught, stored = self._saying("source", source)
        counts = Counter(match.segment.target for match in stored)
        stored.sort(key=lambda match: (-counts[match.segment.target], -match.number))
        return taught[::-1] + stored

    def with_target(self, target: str) -> list[Match]:
        """The segments with this very target text."""
        taught, stored = self._saying("target", target)
        return taught + stored

    def _saying(self, side: Side, text: str) -> tuple[list[Match], list[Match]]:
        """The segments with this text on a side: those taught, the oldest first, and those of the parts."""
        taught = [
            Match(lessons.number(one), one.segment) for lessons in self.taught for one in lessons.saying(side, text)
        ]
        known = {match.number for match in taught}  # a folded lesson has a place in a part
        stored = [
            Match(number, part.segment(local))
            for part in self.parts
            for local in part.saying(side, text)
            if (number := part.first_segment + local) not in known and not self._is_removed(number)
        ]
        return taught, stored

    def find(self, name: str) -> Segment | None:
        """The segment of an id."""
        for lessons in self.taught:
            if name in lessons.taught:
                return lessons.taught[name].segment
        number = self.number_of(name)
        return None if number is None else replace(self.segment(number), id=name)

    def number_of(self, name: str) -> int | None:
        """The number of the parts' segment that has this id and was not removed: the last one, or that of `#17`."""
        for part in reversed(self.parts):
            if name in part.numbers:
                number = part.first_segment + part.numbers[name]
                return None if self._is_removed(number) else number
        if name[:1] == "#" and name[1:].isdecimal() and len(name) < 20:
            part_of = self.part_of(number := int(name[1:]))
            if part_of is not None and not part_of.segment(number - part_of.first_segment).id:
                return None if self._is_removed(number) else number
        return None

    def _is_removed(self, number: int) -> bool:
        return any(number in lessons.removed for lessons in self.taught)
