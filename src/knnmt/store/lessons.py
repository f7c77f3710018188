"""What was taught and removed since a store's part was sealed: a few segments with their states, searched exactly.

A lesson is a segment with all that retrieval needs of it. Records of a journal carry lessons and removals; `Lessons`
is what they add up to; `Lessons.part` puts the lessons into the arrays that a sealed part would have for them.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knnmt.align import Aligner, Bitext, Links
from knnmt.align.bitext import Int32, Int64, offsets_of
from knnmt.build.stages import group_by_type, stored
from knnmt.corpus.segment import Segment
from knnmt.errors import DataError, StoreError
from knnmt.model.represent import StateModel, represent
from knnmt.model.transformer import KeyKind
from knnmt.store.exact import one_line
from knnmt.store.format import digest
from knnmt.store.pieces import Pair, fits, in_pieces

Float16 = NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class Lesson:
    """A segment that was taught; if it is too long for the model, its arrays are those of its pieces in their order.

    segment: its texts, and its id; source_ids: (S,), target_ids: (T,) int32, `</s>` at the end of both, of each piece;
    links: (L, 2) int32, source and target positions; source_states: (S, d), target_keys: (T, d) float16;
    folded: its number in the part, once it has become part of that
    """

    segment: Segment
    source_ids: Int32
    target_ids: Int32
    links: Int32
    source_states: Float16
    target_keys: Float16
    folded: int | None = None

    @property
    def id(self) -> str:
        """What it is known by."""
        return self.segment.id or ""


@dataclass(frozen=True)
class Record:
    """One change of a store: lessons that are new, ids of lessons that go, numbers of the part's segments that go."""

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


class Lessons:
    """All lessons and removals, as they stand after some records."""

    def __init__(self, segments: int, entries: int, version: int = 0) -> None:
        self.taught: dict[str, Lesson] = {}  # by id, the oldest first
        self.removed: set[int] = set()  # segments of the part
        self.version = version  # of this state, for whoever keeps something derived from it
        self._of_source: dict[str, dict[str, Lesson]] = {}  # the same by source text, and then by id
        # numbers of segments and entries go on where the part's end; one that was removed leaves its numbers unused
        self._first: dict[str, tuple[int, int]] = {}
        self._next = segments, entries

    def apply(self, record: Record) -> None:
        """Take up a change."""
        for name in record.dropped:
            lesson = self._forget(name)
            if lesson is not None and lesson.folded is not None:
                self.removed.add(lesson.folded)
        self.removed.update(record.removed)
        for lesson in record.taught:
            self._forget(lesson.id)
            self.taught[lesson.id] = lesson
            self._of_source.setdefault(lesson.segment.source, {})[lesson.id] = lesson
            if lesson.folded is None:
                self._first[lesson.id] = self._next
                self._next = self._next[0] + 1, self._next[1] + lesson.target_ids.size
        self.version += 1

    def _forget(self, name: str) -> Lesson | None:
        lesson = self.taught.pop(name, None)
        if lesson is not None:
            del self._of_source[lesson.segment.source][name]
            if not self._of_source[lesson.segment.source]:
                del self._of_source[lesson.segment.source]
        return lesson

    def __len__(self) -> int:
        return len(self.taught)

    def of_source(self, source: str) -> list[Lesson]:
        """The lessons of a source text, one space between its words, the newest last."""
        return list(self._of_source.get(source, {}).values())

    def replaced_by(self, segment: Segment) -> list[str]:
        """The ids of lessons whose place a segment takes: the same id and, if it has none of its own, the same source.

        Lessons that were taught without an id once had ids made of both texts: they are known by that.
        """
        same = [segment.id or ""] if segment.id in self.taught else []
        if segment.id == automatic_id(segment.source):
            same += [
                lesson.id for lesson in self.of_source(segment.source)
                if lesson.id != segment.id and lesson.id == _digest_of_both(lesson.segment)
            ]  # fmt: skip
        return same

    def has_newest(self, segment: Segment) -> bool:
        """Whether to teach a segment, as `named` gives it, would change nothing."""
        *_, newest = (None, *self.of_source(segment.source))
        if newest is None or self.replaced_by(segment) != [newest.id]:
            return False
        return newest.id == segment.id and newest.segment.target == segment.target

    @property
    def unfolded(self) -> list[Lesson]:
        """The lessons that are not in the part."""
        every = list(self.taught.values())  # at once: another thread may be teaching
        return [lesson for lesson in every if lesson.folded is None]

    def number(self, lesson: Lesson) -> int:
        """The number of a lesson's segment: those of lessons that are not in the part come behind the part's."""
        return self._first[lesson.id][0] if lesson.folded is None else lesson.folded

    def part(self, target_offsets: Int64, vocabulary: int) -> "LessonPart":
        """Everything taught, of which there is something, in arrays. target_offsets: those of the part."""
        lessons = list(self.taught.values())
        numbers = [self.number(lesson) for lesson in lessons]
        first = [
            int(target_offsets[lesson.folded]) if lesson.folded is not None else self._first[lesson.id][1]
            for lesson in lessons
        ]
        return LessonPart(lessons, np.array(numbers), np.array(first), vocabulary)

    def record(self) -> Record:
        """The whole state as one change of a part with nothing taught."""
        return Record(tuple(self.taught.values()), (), tuple(sorted(self.removed)))


class LessonPart(Mapping[str, NDArray[Any]]):
    """Lessons as the arrays of a part, by the same names; `entries` (T,) are the numbers of its rows of target keys.

    Of its own it has `entry_lessons` (T,), the lesson of each row; and by source type the lessons that have a token of
    that, from kind_offsets[type] on in `kind_lessons`.
    """

    def __init__(self, lessons: Sequence[Lesson], numbers: Int64, first: Int64, vocabulary: int) -> None:
        self.lessons, self.numbers = lessons, numbers
        self._first, self._vocabulary = first, vocabulary
        sizes = np.array([lesson.target_ids.size for lesson in lessons])
        self.entries = np.repeat(first - offsets_of(sizes)[:-1], sizes) + np.arange(sizes.sum())
        pairs = ((lesson.source_ids.tolist(), lesson.target_ids.tolist()) for lesson in lessons)
        bitext = Bitext.from_pairs(pairs)
        links = np.concatenate([lesson.links for lesson in lessons])
        counts = offsets_of(np.array([len(lesson.links) for lesson in lessons]))
        grouped = group_by_type(bitext, Links(links[:, 0], links[:, 1], counts), vocabulary)
        positions = grouped.pop("positions")
        source = np.concatenate([lesson.source_states for lesson in lessons])[positions]
        target = np.concatenate([lesson.target_keys for lesson in lessons])
        kinds = np.repeat(np.arange(len(lessons)), bitext.source_lengths) + len(lessons) * bitext.source_ids.astype(int)
        kinds = np.unique(kinds)
        self._arrays: dict[str, NDArray[Any]] = {
            **grouped,
            "entry_lessons": np.repeat(np.arange(len(lessons)), sizes),
            "kind_offsets": np.searchsorted(kinds, len(lessons) * np.arange(vocabulary + 1)),
            "kind_lessons": kinds % len(lessons),
            "target_ids": bitext.target_ids,
            "source_keys": source,
            "source_norms": _squared_lengths(source),
            "target_keys": target,
            "target_norms": _squared_lengths(target),
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def without(self, left_out: Collection[int]) -> "LessonPart | None":
        """The same less the lessons whose segments have these numbers; None where none is left."""
        kept = [row for row, number in enumerate(self.numbers.tolist()) if number not in left_out]
        if len(kept) == len(self.lessons):
            return self
        lessons = [self.lessons[row] for row in kept]
        return LessonPart(lessons, self.numbers[kept], self._first[kept], self._vocabulary) if kept else None

    @cached_property
    def segment_of(self) -> dict[int, Lesson]:
        """Lessons by the numbers of their segments."""
        return dict(zip(self.numbers.tolist(), self.lessons, strict=True))

    def where(self, entries: Int64) -> tuple[Int64, Int64]:
        """The segment of each entry, and its place in that, for those that are of lessons; -1 for the others."""
        order = np.argsort(self.entries)
        rows = order[np.searchsorted(self.entries, entries, sorter=order).clip(max=len(order) - 1)]
        lengths = np.array([lesson.target_ids.size for lesson in self.lessons])
        offsets = offsets_of(lengths)
        lesson = np.searchsorted(offsets, rows, side="right") - 1
        known = self.entries[rows] == entries
        return np.where(known, self.numbers[lesson], -1), np.where(known, rows - offsets[lesson], -1)


def learn(
    segments: Sequence[Segment],
    model: StateModel,
    aligner: Aligner,
    key: KeyKind,
    *,
    unit: bool,
    bad: Callable[[DataError], None] | None = None,
) -> list[Lesson | None]:
    """Make lessons of segments, as `named` gives them: tokens, links by the alignment model of the corpus, and states.

    What cannot be learnt is told to `bad` and None stands in its place, or it is raised where nobody wants to be told.
    """
    sources = model.tokenizer.encode_source([segment.source for segment in segments])
    targets = model.tokenizer.encode_target([segment.target for segment in segments])
    pieces: list[list[Pair]] = []
    for segment, source, target in zip(segments, sources, targets, strict=True):
        try:
            pieces.append(_pieces(segment, source, target, model, aligner))
        except DataError as fault:
            if bad is None:
                raise
            bad(fault)
            pieces.append([])
    pairs = [pair for own in pieces for pair in own]
    if not pairs:
        return [None] * len(segments)
    links = aligner.align(Bitext.from_pairs((source, [*target, model.special.end]) for source, target in pairs))
    states: dict[int, tuple[Float16, Float16]] = {}
    for some in represent(model, pairs, key=key, batch_tokens=2048):
        source_states = np.split(stored(some.source, unit), np.cumsum([len(pairs[row][0]) for row in some.rows])[:-1])
        target_keys = np.split(stored(some.target, unit), np.cumsum([len(pairs[row][1]) + 1 for row in some.rows])[:-1])
        states |= dict(zip(some.rows, zip(source_states, target_keys, strict=True), strict=True))
    lessons: list[Lesson | None] = []
    rows = iter(range(len(pairs)))
    for segment, own in zip(segments, pieces, strict=True):
        parts = [
            Lesson(
                segment, np.array(source, np.int32), np.array([*target, model.special.end], np.int32),
                np.array(links.segment(row), np.int32).reshape(-1, 2), *states[row],
            )
            for (source, target), row in zip(own, rows, strict=False)
        ]  # fmt: skip
        lessons.append(_joined(parts) if parts else None)
    return lessons


def _joined(parts: Sequence[Lesson]) -> Lesson:
    """One lesson of the lessons that a segment's pieces make: their arrays, one after the other."""
    sizes = np.array([(0, 0), *((part.source_ids.size, part.target_ids.size) for part in parts)], np.int32)
    first = sizes.cumsum(axis=0, dtype=np.int32)
    return Lesson(
        parts[0].segment,
        np.concatenate([part.source_ids for part in parts]),
        np.concatenate([part.target_ids for part in parts]),
        np.concatenate([part.links + before for part, before in zip(parts, first, strict=False)]),
        np.concatenate([part.source_states for part in parts]),
        np.concatenate([part.target_keys for part in parts]),
    )


def _pieces(segment: Segment, source: list[int], target: list[int], model: StateModel, aligner: Aligner) -> list[Pair]:
    """The tokens of a segment, source and target: at once, or in pieces where the model does not take them at once."""
    where = f"{segment.origin}: " if segment.origin else ""
    if not segment.source or not target:
        raise DataError(f"{where}a segment with an empty side cannot be learnt: {_shown(segment)}")
    if fits(model, source, target):
        return [(source, target)]
    cut = in_pieces(segment, model, aligner)
    if cut is None:
        raise DataError(
            f"{where}a segment is too long for the model, and its two sides cannot be cut into as many pieces: "
            f"{_shown(segment)}"
        )
    return cut


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


def _shown(segment: Segment) -> str:
    text = f"{segment.source} | {segment.target}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _squared_lengths(rows: Float16) -> NDArray[np.float32]:
    return torch.from_numpy(rows).float().square().sum(dim=-1).numpy()


# ------------------------------------------------------------------------------------------------- records as bytes


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Header(_Written):
    """A lesson but for its arrays, whose sizes it gives."""

    source: str
    target: str
    origin: str
    id: str = Field(min_length=1)
    folded: int | None = Field(ge=0)
    source_tokens: int = Field(ge=1)
    target_tokens: int = Field(ge=1)
    links: int = Field(ge=0)


class _RecordHeader(_Written):
    taught: list[_Header] = []
    dropped: list[str] = []
    removed: list[int] = []


def texts_of(content: bytes) -> Record | None:
    """What a damaged record seems to have held, its lessons without arrays; None where that cannot be read."""
    try:
        header = _RecordHeader.model_validate_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except ValidationError:
        return None
    nothing = np.zeros((0, 2), np.int32), np.zeros((0, 0), np.float16), np.zeros((0, 0), np.float16)
    taught = [
        Lesson(Segment(each.source, each.target, each.origin, each.id), nothing[0][:, 0], nothing[0][:, 1], *nothing)
        for each in header.taught
    ]
    return Record(tuple(taught), tuple(header.dropped), tuple(header.removed))


def to_bytes(record: Record) -> bytes:
    """A record as a journal keeps it: JSON, its length before it, and the arrays of the lessons."""
    header = _RecordHeader(
        taught=[
            _Header(
                source=lesson.segment.source, target=lesson.segment.target, origin=lesson.segment.origin, id=lesson.id,
                folded=lesson.folded, source_tokens=lesson.source_ids.size, target_tokens=lesson.target_ids.size,
                links=len(lesson.links),
            )
            for lesson in record.taught
        ],
        dropped=list(record.dropped),
        removed=list(record.removed),
    )  # fmt: skip
    head = json.dumps(header.model_dump(mode="json")).encode()  # ASCII: half a surrogate pair is kept as it is
    arrays = [
        array.tobytes()
        for lesson in record.taught
        for array in (
            lesson.source_ids, lesson.target_ids, lesson.links, lesson.source_states, lesson.target_keys,
        )
    ]  # fmt: skip
    return b"".join((len(head).to_bytes(8, "little"), head, *arrays))


def from_bytes(content: bytes, width: int, source_vocabulary: int, target_vocabulary: int, segments: int) -> Record:
    """Read what `to_bytes` wrote for a store of these sizes; what cannot be one of its records is refused."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = _RecordHeader.model_validate_json(content[8 : 8 + length])
    except ValidationError as error:
        raise StoreError("the journal is damaged: a record is none of a store's") from error
    at = 8 + length

    def take(dtype: str, *shape: int) -> NDArray[Any]:
        nonlocal at
        count = int(np.prod(shape))
        end = at + count * np.dtype(dtype).itemsize
        if end > len(content):
            raise StoreError("the journal is damaged: a record is shorter than it says")
        array = np.frombuffer(content, dtype, count, at).reshape(shape)
        at = end
        return array

    taught = []
    for lesson in header.taught:
        source_ids, target_ids = take("int32", lesson.source_tokens), take("int32", lesson.target_tokens)
        links = take("int32", lesson.links, 2)
        states, keys = take("float16", lesson.source_tokens, width), take("float16", lesson.target_tokens, width)
        bounds = [(source_ids, source_vocabulary), (target_ids, target_vocabulary)]
        bounds += [(links[:, 0], lesson.source_tokens), (links[:, 1], lesson.target_tokens)]
        bounds += [(np.array([] if lesson.folded is None else [lesson.folded], np.int64), segments)]
        if not all(_inside(array, size) for array, size in bounds):
            raise StoreError("the journal is damaged: a lesson has numbers that this store cannot have")
        segment = Segment(lesson.source, lesson.target, lesson.origin, lesson.id)
        taught.append(Lesson(segment, source_ids, target_ids, links, states, keys, lesson.folded))
    if at != len(content) or not _inside(np.array(header.removed, np.int64), segments):
        raise StoreError("the journal is damaged: a record does not fit this store")
    return Record(tuple(taught), tuple(header.dropped), tuple(header.removed))


def _inside(numbers: NDArray[Any], size: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= 0 and int(numbers.max()) < size)
