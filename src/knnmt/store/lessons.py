"""What was taught and removed since a store's parts were sealed: a few segments with their states, searched exactly.

A lesson is a segment with all that retrieval needs of it. Records of a journal carry lessons and removals; `Lessons`
is what they add up to; `LessonPart` has the lessons in the arrays that a sealed part would have for them. The states
of a lesson that compaction has sealed are read from its part; where that keeps none, or quantized ones, the journal
still has them: a lesson is searched exactly, whatever the systems of the store are.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext, Links
from knnmt.corpus.segment import Segment
from knnmt.csr import Int32, Int64, offsets_of
from knnmt.errors import StoreError
from knnmt.files import digest
from knnmt.store.digests import one_line
from knnmt.store.entries import group_by_type
from knnmt.store.part import SIDES, Part, Side

Float16 = NDArray[np.float16]
Float32 = NDArray[np.float32]


class LessonStates(NamedTuple):
    """The states of a lesson: of its source tokens (S, d), and the keys of its target tokens (T, d)."""

    source: Float16
    target: Float16


@dataclass(frozen=True, eq=False)
class SealedStates:
    """The same for a lesson in a part that keeps them whole, read from there when first asked for.

    number: of its segment in the part; the other fields are the lesson's. Of source tokens without links, which no
    search asks for, a part keeps nothing: their states are zeros.
    """

    part: Part
    number: int
    source_ids: Int32
    target_ids: Int32
    links: Int32

    @cached_property
    def target(self) -> Float16:
        """Keys of the target tokens: (T, d)."""
        first, last = self._entries
        return np.array(self.part["target_keys"][first:last])

    @cached_property
    def source(self) -> Float16:
        """States of the source tokens: (S, d)."""
        first, last = self._entries
        names = ("type_offsets", "link_offsets", "link_entries", "source_keys")
        types, starts, entries, keys = (np.asarray(self.part[name]) for name in names)
        linked: dict[int, list[int]] = defaultdict(list)  # positions by type
        ids = self.source_ids.tolist()
        for position in sorted({position for position, _ in self.links.tolist()}):
            linked[ids[position]].append(position)
        rows: list[int] = []
        for kind, own in linked.items():
            # the tokens of a type stand in the order of the corpus, and those of a segment link to its entries
            tokens = range(*types[kind : kind + 2].tolist())
            before = bisect_left(tokens, first, key=lambda token: entries[starts[token]])
            rows += tokens[before : before + len(own)]
        positions = [position for own in linked.values() for position in own]
        there = entries[starts[rows]]
        if len(rows) < len(positions) or not ((there >= first) & (there < last)).all():
            raise self._corrupt()
        states = np.zeros((len(ids), keys.shape[1]), np.float16)
        states[positions] = keys[rows]
        return states

    @cached_property
    def _entries(self) -> tuple[int, int]:
        """The first entry of the segment, and the one after its last."""
        first, last = self.part["target_offsets"][self.number : self.number + 2].tolist()
        if not np.array_equal(self.part["target_ids"][first:last], self.target_ids):
            raise self._corrupt()
        return first, last

    def _corrupt(self) -> StoreError:
        return StoreError(f"{self.part.folder.parent} is corrupt: its journal has a lesson that its parts do not have")


@dataclass(frozen=True, eq=False)
class Lesson:
    """A segment that was taught; if it is too long for the model, its arrays are those of its pieces in their order.

    segment: its texts, and its id; source_ids: (S,), target_ids: (T,) int32, `</s>` at the end of both, of each piece;
    links: (L, 2) int32, source and target positions; folded: its number in the parts, once it is in one of them
    """

    segment: Segment
    source_ids: Int32
    target_ids: Int32
    links: Int32
    states: LessonStates | SealedStates
    folded: int | None = None

    @property
    def id(self) -> str:
        """What it is known by."""
        return self.segment.id or ""

    @cached_property
    def norms(self) -> tuple[Float32, Float32]:
        """Squared lengths of source states (S,) and target keys (T,): measured once, however often arrays are made."""
        source, target = (
            torch.from_numpy(rows.astype(np.float32)).square_().sum(dim=-1).numpy()
            for rows in (self.states.source, self.states.target)
        )
        return source, target


@dataclass(frozen=True)
class Record:
    """One change of a store: lessons that are new, ids of lessons that go, numbers of the parts' segments that go."""

    taught: tuple[Lesson, ...] = ()
    dropped: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()

    def as_texts(self) -> list[str]:
        """What it changes, for people to read."""
        gone = [name for name in self.dropped if name not in {lesson.id for lesson in self.taught}]
        return [
            *(f"the lesson {each.id}: {each.segment.source} | {each.segment.target}" for each in self.taught),
            *(f"the removal of {name}" for name in (*gone, *(f"#{number}" for number in self.removed))),
        ]

    def shifted(self, by: int) -> "Record":
        """The same for a store whose first segment has another number."""
        if not by:
            return self
        taught = [one if one.folded is None else replace(one, folded=one.folded + by) for one in self.taught]
        return replace(self, taught=tuple(taught), removed=tuple(number + by for number in self.removed))


class Lessons:
    """All lessons and removals, as they stand after some records; numbered from `segments` and `entries` on."""

    def __init__(self, segments: int, entries: int, version: int = 0) -> None:
        self.taught: dict[str, Lesson] = {}  # by id, the oldest first
        self.removed: set[int] = set()  # segments of the parts
        self.folded: set[int] = set()  # segments of the parts that are lessons
        self.version = version  # of this state, for whoever keeps something derived from it
        self._saying: dict[tuple[Side, str], dict[str, Lesson]] = defaultdict(dict)  # by text, and then by id
        self._first: dict[str, tuple[int, int]] = {}  # numbers of those that are not in a part, by id
        self._at: dict[int, Lesson] = {}  # the same by number of the segment
        self._next = segments, entries  # one that was removed leaves its numbers unused

    def apply(self, record: Record) -> None:
        """Take up a change."""
        for name in record.dropped:
            lesson = self._forget(name)
            if lesson is not None and lesson.folded is not None:
                self.removed.add(lesson.folded)
        self.removed.update(record.removed)
        for lesson in record.taught:
            self._forget(lesson.id)
            if lesson.folded is None:
                self._first[lesson.id] = self._next
                self._at[self._next[0]] = lesson
                self._next = self._next[0] + 1, self._next[1] + lesson.target_ids.size
            else:
                self.folded.add(lesson.folded)
            for side in SIDES:
                self._saying[side, _text(lesson, side)][lesson.id] = lesson
            self.taught[lesson.id] = lesson  # now that all is known of it: another thread may be reading
        self.version += 1

    def _forget(self, name: str) -> Lesson | None:
        lesson = self.taught.pop(name, None)
        if lesson is None:
            return None
        for side in SIDES:
            same = self._saying[side, _text(lesson, side)]
            del same[name]
            if not same:
                del self._saying[side, _text(lesson, side)]
        if lesson.folded is None:
            del self._at[self._first[name][0]]
        else:
            self.folded.discard(lesson.folded)
        return lesson

    def __len__(self) -> int:
        return len(self.taught)

    def saying(self, side: Side, text: str) -> list[Lesson]:
        """The lessons with this very text on a side, white space aside, the newest last."""
        return list(self._saying.get((side, one_line(text)), {}).values())

    def replaced_by(self, segment: Segment) -> list[str]:
        """The ids of lessons whose place a segment takes: the same id and, if it has none of its own, the same source.

        Lessons that were taught without an id once had ids made of both texts: they are known by that.
        """
        same = [segment.id or ""] if segment.id in self.taught else []
        if segment.id == automatic_id(segment.source):
            same += [
                lesson.id for lesson in self.saying("source", segment.source)
                if lesson.id != segment.id and lesson.id == _digest_of_both(lesson.segment)
            ]  # fmt: skip
        return same

    def has_newest(self, segment: Segment) -> bool:
        """Whether to teach a segment, as `named` gives it, would change nothing."""
        *_, newest = (None, *self.saying("source", segment.source))
        if newest is None or self.replaced_by(segment) != [newest.id]:
            return False
        return newest.id == segment.id and newest.segment.target == segment.target

    @property
    def unfolded(self) -> list[Lesson]:
        """The lessons that are not in a part."""
        return list(self._at.values())  # at once: another thread may be teaching

    def number(self, lesson: Lesson) -> int:
        """The number of a lesson's segment: those of lessons that are not in a part come behind the parts'."""
        return self._first[lesson.id][0] if lesson.folded is None else lesson.folded

    def at(self, number: int) -> Lesson | None:
        """The lesson that is in no part and has this number."""
        return self._at.get(number)

    def first(self, lesson: Lesson) -> tuple[int, int]:
        """The numbers of segment and first entry of a lesson that is in no part."""
        return self._first[lesson.id]

    def record(self) -> Record:
        """The whole state as one change of parts with nothing taught."""
        return Record(tuple(self.taught.values()), (), tuple(sorted(self.removed)))


class LessonPart(Mapping[str, NDArray[Any]]):
    """Lessons as the arrays of a part, by the same names; `entries` (T,) are the numbers of its rows of target keys.

    Of its own it has `entry_lessons` (T,), the lesson of each row; and by source type the lessons that have a token of
    that, from kind_offsets[type] on in `kind_lessons`.
    """

    def __init__(self, rows: Sequence[tuple[Lesson, int, int]], vocabulary: int) -> None:
        """Rows, at least one: lesson, number of its segment, number of its first entry."""
        self._rows, self._vocabulary = rows, vocabulary
        self.lessons = [lesson for lesson, _, _ in rows]
        self.numbers, first = (np.array([row[field] for row in rows]) for field in (1, 2))
        lessons = self.lessons
        self._offsets = offsets_of(np.array([lesson.target_ids.size for lesson in lessons]))
        sizes = np.diff(self._offsets)
        self.entries: Int64 = np.repeat(first - self._offsets[:-1], sizes) + np.arange(self._offsets[-1])
        source_offsets = offsets_of(np.array([lesson.source_ids.size for lesson in lessons]))
        bitext = Bitext(
            np.concatenate([lesson.source_ids for lesson in lessons]), source_offsets,
            np.concatenate([lesson.target_ids for lesson in lessons]), self._offsets,
        )  # fmt: skip
        links = np.concatenate([lesson.links for lesson in lessons])
        counts = offsets_of(np.array([len(lesson.links) for lesson in lessons]))
        grouped = group_by_type(bitext, Links(links[:, 0], links[:, 1], counts), vocabulary)
        positions = grouped.pop("positions")
        kinds = np.repeat(np.arange(len(lessons)), bitext.source_lengths) + len(lessons) * bitext.source_ids.astype(int)
        kinds = np.unique(kinds)
        self._arrays: dict[str, NDArray[Any]] = {
            **grouped,
            "entry_lessons": np.repeat(np.arange(len(lessons)), sizes),
            "kind_offsets": np.searchsorted(kinds, len(lessons) * np.arange(vocabulary + 1)),
            "kind_lessons": kinds % len(lessons),
            "target_ids": bitext.target_ids,
            "source_keys": np.concatenate([lesson.states.source for lesson in lessons])[positions],
            "source_norms": np.concatenate([lesson.norms[0] for lesson in lessons])[positions],
            "target_keys": np.concatenate([lesson.states.target for lesson in lessons]),
            "target_norms": np.concatenate([lesson.norms[1] for lesson in lessons]),
        }

    @property
    def sizes(self) -> dict[str, int]:
        """How many segments, entries, tokens and links there are."""
        counted = {"entries": "target_ids", "tokens": "source_keys", "links": "link_entries"}
        return {"segments": len(self.lessons)} | {name: len(self._arrays[of]) for name, of in counted.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def without(self, left_out: Collection[int]) -> "LessonPart | None":
        """The same less the lessons whose segments have these numbers; None where none is left."""
        kept = [row for row in self._rows if row[1] not in left_out]
        if len(kept) == len(self._rows):
            return self
        return LessonPart(kept, self._vocabulary) if kept else None

    def where(self, entries: Int64) -> tuple[Int64, Int64]:
        """The segment of each entry, and its place in that, for those that are of lessons; -1 for the others."""
        order = np.argsort(self.entries)
        rows = order[np.searchsorted(self.entries, entries, sorter=order).clip(max=len(order) - 1)]
        lesson = np.searchsorted(self._offsets, rows, side="right") - 1
        known = self.entries[rows] == entries
        return np.where(known, self.numbers[lesson], -1), np.where(known, rows - self._offsets[lesson], -1)


# -------------------------------------------------------------------------------------------------------------- ids


def named(segment: Segment) -> Segment:
    """A segment as it is kept: one space between words, as a translation has it, and an id."""
    source, target = one_line(segment.source), one_line(segment.target)
    kept = replace(segment, source=source, target=target)
    if segment.id and segment.id.startswith("#"):  # the place of one among many: its source need not be its own
        return replace(kept, id=f"segment-{_digest_of_both(kept)}")
    return replace(kept, id=segment.id or automatic_id(source))


def automatic_id(source: str) -> str:
    """The id of what is taught without one: made of the source alone, so that what is taught later replaces it."""
    return "taught-" + blake2b(source.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _digest_of_both(segment: Segment) -> str:
    return digest(f"{segment.source}\0{segment.target}".encode(errors="surrogatepass"))[:16]


def _text(lesson: Lesson, side: Side) -> str:
    return one_line(lesson.segment.source if side == "source" else lesson.segment.target)
