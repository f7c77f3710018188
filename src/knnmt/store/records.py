"""Records of a journal as bytes: lessons and removals, read back only if they can be those of the store."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knnmt.corpus.segment import Segment
from knnmt.errors import StoreError
from knnmt.store.lessons import Lesson, LessonStates, Record, SealedStates
from knnmt.store.part import Part


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Header(_Written):
    """A lesson but for its arrays, whose sizes it gives; `sealed`: its states are in its part, not in the record."""

    source: str
    target: str
    origin: str
    id: str = Field(min_length=1)
    folded: int | None = Field(ge=0)
    source_tokens: int = Field(ge=1)
    target_tokens: int = Field(ge=1)
    links: int = Field(ge=0)
    sealed: bool = False


class _RecordHeader(_Written):
    taught: list[_Header] = []
    dropped: list[str] = []
    removed: list[int] = []


def texts_of(content: bytes) -> Record | None:
    """What a corrupt record seems to have held, its lessons without arrays; None where that cannot be read."""
    try:
        header = _RecordHeader.model_validate_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except ValidationError:
        return None
    none, links = np.zeros(0, np.int32), np.zeros((0, 2), np.int32)
    states = LessonStates(*np.zeros((2, 0, 0), np.float16))
    taught = [
        Lesson(Segment(each.source, each.target, each.origin, each.id), none, none, links, states)
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
                links=len(lesson.links), sealed=isinstance(lesson.states, SealedStates),
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
        for array in (lesson.source_ids, lesson.target_ids, lesson.links, *_written_states(lesson))
    ]
    return b"".join((len(head).to_bytes(8, "little"), head, *arrays))


def from_bytes(content: bytes, sizes: Mapping[str, int], place: Callable[[int], tuple[Part, int]]) -> Record:
    """Read what `to_bytes` wrote for a store of these sizes; what cannot be one of its records is refused.

    place: the part that has a segment of the store, and the segment's number in it
    """
    width, segments = sizes["width"], sizes["segments"]
    length = int.from_bytes(content[:8], "little")
    try:
        header = _RecordHeader.model_validate_json(content[8 : 8 + length])
    except ValidationError as error:
        raise StoreError("the journal is corrupt: invalid record header") from error
    at = 8 + length

    def take(dtype: str, *shape: int) -> NDArray[Any]:
        nonlocal at
        count = int(np.prod(shape))
        end = at + count * np.dtype(dtype).itemsize
        if end > len(content):
            raise StoreError("the journal is corrupt: truncated record")
        array = np.frombuffer(content, dtype, count, at).reshape(shape)
        at = end
        return array

    taught = []
    for lesson in header.taught:
        source_ids, target_ids = take("int32", lesson.source_tokens), take("int32", lesson.target_tokens)
        links = take("int32", lesson.links, 2)
        shapes = [] if lesson.sealed else [(lesson.source_tokens, width), (lesson.target_tokens, width)]
        states = [take("float16", *shape) for shape in shapes]
        bounds = [(source_ids, sizes["source_vocabulary"]), (target_ids, sizes["target_vocabulary"])]
        bounds += [(links[:, 0], lesson.source_tokens), (links[:, 1], lesson.target_tokens)]
        bounds += [(np.array([] if lesson.folded is None else [lesson.folded], np.int64), segments)]
        if not all(_inside(array, size) for array, size in bounds) or (lesson.sealed and lesson.folded is None):
            raise StoreError("the journal is corrupt: a lesson has numbers out of range for this store")
        segment = Segment(lesson.source, lesson.target, lesson.origin, lesson.id)
        known: LessonStates | SealedStates
        if lesson.folded is not None and lesson.sealed:
            known = SealedStates(*place(lesson.folded), source_ids, target_ids, links)
        else:
            known = LessonStates(*states)
        taught.append(Lesson(segment, source_ids, target_ids, links, known, lesson.folded))
    if at != len(content) or not _inside(np.array(header.removed, np.int64), segments):
        raise StoreError("the journal is corrupt: a record does not fit this store")
    return Record(tuple(taught), tuple(header.dropped), tuple(header.removed))


def _written_states(lesson: Lesson) -> tuple[NDArray[Any], ...]:
    return () if isinstance(lesson.states, SealedStates) else lesson.states


def _inside(numbers: NDArray[Any], size: int) -> bool:
    return not numbers.size or (int(numbers.min()) >= 0 and int(numbers.max()) < size)
