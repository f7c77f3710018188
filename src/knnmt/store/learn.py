"""From segments to lessons: tokens, links by the alignment model of the corpus, and the states of the model."""

from collections.abc import Callable, Sequence

import numpy as np

from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import Aligner
from knnmt.corpus.segment import Segment
from knnmt.errors import DataError
from knnmt.model.represent import StateModel, represent
from knnmt.model.transformer import KeyKind
from knnmt.store.entries import stored
from knnmt.store.lessons import Lesson, LessonStates
from knnmt.store.part import SIDES
from knnmt.store.pieces import Pair, fits, in_pieces


def learn(
    segments: Sequence[Segment],
    model: StateModel,
    aligner: Aligner,
    key: KeyKind,
    *,
    unit: bool,
    bad: Callable[[DataError], None] | None = None,
) -> list[Lesson | None]:
    """Make a lesson of each segment, as `named` gives them.

    What cannot be learnt is reported to `bad` and None stands in its place; without `bad`, it is raised.
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
    states: dict[int, LessonStates] = {}
    for some in represent(model, pairs, key=key, batch_tokens=2048):
        source_states = np.split(stored(some.source, unit), np.cumsum([len(pairs[row][0]) for row in some.rows])[:-1])
        target_keys = np.split(stored(some.target, unit), np.cumsum([len(pairs[row][1]) + 1 for row in some.rows])[:-1])
        states |= dict(zip(some.rows, map(LessonStates, source_states, target_keys), strict=True))
    lessons: list[Lesson | None] = []
    rows = iter(range(len(pairs)))
    for segment, own in zip(segments, pieces, strict=True):
        parts = [
            Lesson(
                segment, np.array(source, np.int32), np.array([*target, model.special.end], np.int32),
                np.array(links.segment(row), np.int32).reshape(-1, 2), states[row],
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
        LessonStates(*(np.concatenate([getattr(part.states, side) for part in parts]) for side in SIDES)),
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


def _shown(segment: Segment) -> str:
    text = f"{segment.source} | {segment.target}"
    return text if len(text) <= 80 else f"{text[:79]}…"
