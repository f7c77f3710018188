"""Stage `merge`: the content of a part from that of neighbouring parts, less what was removed, and from lessons.

Everything is taken from arrays; the model is not run. The order of the corpus is kept. `tiers` says what to merge, as
Lucene does: when there are many parts of about one size, they become one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.build.context import Context
from knnmt.build.similar import segments_of_tokens
from knnmt.csr import Int64, blocks, offsets_of, ranges, runs
from knnmt.errors import DataError
from knnmt.store import arrays, digests
from knnmt.store.lessons import Lesson, LessonPart
from knnmt.store.part import Part

MANY, FACTOR = 8, 8  # parts that become one, if the largest has less than FACTOR times the entries of the smallest
SMALLEST = 1 << 13  # entries; parts that have fewer count as if they had so many
ROWS = 1 << 14  # states that are copied at a time
SIDES = ("source", "target")
STATES = ("target_keys", "source_keys", "type_offsets", "link_offsets", "link_entries")

Arrays = Part | Mapping[str, NDArray[Any]]
"""Arrays by name: a part, or those of lessons."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Segments to be merged: the arrays of a part, or of lessons, and which segments stay: (segments,) bool."""

    arrays: Arrays
    kept: NDArray[np.bool_]

    @property
    def entries(self) -> int:
        """How many stay."""
        return int(np.diff(self.arrays["target_offsets"])[self.kept].sum())

    @property
    def changed(self) -> bool:
        """Whether it is no part, or a part less something."""
        return not isinstance(self.arrays, Part) or not self.kept.all()


@dataclass(frozen=True, eq=False)
class _Rows:
    """The tokens of a piece that stay: rows (N,), their types (N,), and `place` (N,), their rows in the new part."""

    rows: Int64
    types: Int64
    place: Int64


def has_states(content: Arrays) -> bool:
    """Whether a part holds the states of its tokens: one with quantized keys, or for some systems only, does not."""
    return all(name in content for name in STATES)


def tiers(sizes: Sequence[int], most: int) -> list[range]:
    """Which of neighbouring parts of these sizes, in entries, become one; no part gets more than `most`."""
    groups = [range(number, number + 1) for number in range(len(sizes))]

    def fits(some: Sequence[range]) -> bool:
        each = [sum(sizes[number] for number in group) for group in some]
        levels = [max(size, SMALLEST) for size in each]
        return sum(each) <= most and max(levels) < FACTOR * min(levels)

    at = 0
    while at + MANY <= len(groups):
        if fits(groups[at : at + MANY]):
            groups[at : at + MANY] = [range(groups[at].start, groups[at + MANY - 1].stop)]
            at = 0
        else:
            at += 1
    return groups


def of_lessons(lessons: Sequence[Lesson], vocabulary: int) -> dict[str, NDArray[Any]]:
    """The content of a part of lessons."""
    found = LessonPart([(lesson, number, 0) for number, lesson in enumerate(lessons)], vocabulary)
    segments = [lesson.segment for lesson in lessons]
    texts = [field.encode() for each in segments for field in (each.source, each.target, each.origin, each.id or "")]
    made: dict[str, NDArray[Any]] = {name: found[name] for name in ("target_ids", *STATES)}
    made["text"] = np.frombuffer(b"".join(texts), np.uint8)
    made["text_offsets"] = offsets_of(np.array(list(map(len, texts))))
    made["target_offsets"] = offsets_of(np.array([lesson.target_ids.size for lesson in lessons]))
    for side in SIDES:
        made |= digests.arrays_of(side, (digests.digest(getattr(segment, side)) for segment in segments))
    return made


def merge(context: Context, pieces: Sequence[Piece]) -> None:
    """Write the content of a part: texts, tokens, links by type, and states."""
    _merge_texts(context, pieces)
    entries = [_kept_entries(piece) for piece in pieces]
    lengths = [np.diff(piece.arrays["target_offsets"])[piece.kept] for piece in pieces]
    ids = [piece.arrays["target_ids"][own] for piece, own in zip(pieces, entries, strict=True)]
    context.write(target_offsets=offsets_of(np.concatenate(lengths)), target_ids=np.concatenate(ids))
    tokens = _place_tokens(context, pieces)
    if not sum(own.rows.size for own in tokens):
        raise DataError("none of the segments that would be left has an aligned token: remove them too")
    total = sum(own.size for own in entries) + sum(own.rows.size for own in tokens)
    advance = context.watch("merge", total)
    keys = context.create("target_keys", "float16", (sum(own.size for own in entries), context.width))
    states = context.create("source_keys", "float16", (sum(own.rows.size for own in tokens), context.width))
    at = 0
    for piece, own, rows in zip(pieces, entries, tokens, strict=True):
        _copy(piece.arrays["target_keys"], own, keys, at + np.arange(own.size), advance)
        _copy(piece.arrays["source_keys"], rows.rows, states, rows.place, advance)
        at += own.size
    _merge_links(context, pieces, entries, tokens)
    if all("given_links" in piece.arrays for piece in pieces):
        context.write(**given_links(pieces))


def _copy(rows: NDArray[Any], some: Int64, out: NDArray[Any], place: Int64, advance: Callable[[int], None]) -> None:
    """Copy some rows to their places, a few at a time."""
    for here in (slice(start, start + ROWS) for start in range(0, some.size, ROWS)):
        out[place[here]] = rows[some[here]]
        advance(some[here].size)


def given_links(pieces: Sequence[Piece]) -> dict[str, NDArray[Any]]:
    """The links that were made elsewhere, of the segments that stay."""
    kept = [(piece.arrays, np.flatnonzero(piece.kept)) for piece in pieces]
    counts = [np.diff(own["given_offsets"])[some] for own, some in kept]
    links = [own["given_links"][runs(own["given_offsets"], some)] for own, some in kept]
    return {"given_links": np.concatenate(links), "given_offsets": offsets_of(np.concatenate(counts))}


def _kept_entries(piece: Piece) -> Int64:
    """The entries of the segments that stay."""
    return runs(piece.arrays["target_offsets"], np.flatnonzero(piece.kept))


def _merge_texts(context: Context, pieces: Sequence[Piece]) -> None:
    """Texts and their digests."""
    lengths = []
    with arrays.Stream(context.path("text"), "uint8") as text:
        for piece in pieces:
            offsets = piece.arrays["text_offsets"]
            lengths.append(np.diff(offsets).reshape(-1, 4)[piece.kept].ravel())
            for first, last in blocks(offsets[::4]):
                whole = piece.arrays["text"][offsets[4 * first] : offsets[4 * last]]
                stays = np.repeat(piece.kept[first:last], np.diff(offsets[4 * first : 4 * last + 1 : 4]))
                text.extend(whole[stays].tobytes())
    context.write(text_offsets=offsets_of(np.concatenate(lengths)))
    for side in SIDES:
        found = np.concatenate([_digests(piece, side)[piece.kept] for piece in pieces])
        context.write(**digests.arrays_of(side, found))


def _digests(piece: Piece, side: str) -> NDArray[np.uint64]:
    """The digests of a side's texts, by segment."""
    found = np.empty(piece.kept.size, np.uint64)
    if f"{side}_digests" in piece.arrays:
        found[piece.arrays[f"{side}_order"]] = piece.arrays[f"{side}_digests"]
        return found
    offsets, text = piece.arrays["text_offsets"], piece.arrays["text"]
    for number in range(piece.kept.size):
        begin, end = offsets[4 * number + SIDES.index(side) :][:2]
        found[number] = digests.digest(bytes(text[begin:end]).decode(errors="replace"))
    return found


def _place_tokens(context: Context, pieces: Sequence[Piece]) -> list[_Rows]:
    """Which tokens stay, and where: by type, then place in the corpus; writes where each type's begin."""
    found = []
    for piece in pieces:
        offsets = piece.arrays["type_offsets"]
        types = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        segments = segments_of_tokens(*(piece.arrays[name] for name in (*STATES[3:], "target_offsets")))
        rows = np.flatnonzero(piece.kept[segments])
        place = types * piece.kept.size + segments
        if (np.diff(place) < 0).any():  # a part of format 1 has them by cluster
            rows = rows[np.argsort(place[rows], kind="stable")]
        found.append((rows, types[rows]))
    counts = [np.bincount(types, minlength=context.vocabulary) for _, types in found]
    type_offsets = offsets_of(np.sum(counts, axis=0))
    context.write(type_offsets=type_offsets)
    before = accumulate(counts[:-1], initial=type_offsets[:-1])
    return [
        _Rows(rows, types, first[types] + np.arange(rows.size) - offsets_of(own)[types])
        for (rows, types), own, first in zip(found, counts, before, strict=True)
    ]


def _merge_links(context: Context, pieces: Sequence[Piece], entries: Sequence[Int64], tokens: Sequence[_Rows]) -> None:
    """The entries that each token links to, by their new numbers."""
    counts = np.zeros(sum(own.rows.size for own in tokens), np.int64)
    for piece, own in zip(pieces, tokens, strict=True):
        counts[own.place] = np.diff(piece.arrays["link_offsets"])[own.rows]
    offsets = offsets_of(counts)
    links = np.empty(offsets[-1], np.int32)
    first = 0
    for piece, kept, own in zip(pieces, entries, tokens, strict=True):
        number = np.zeros(int(piece.arrays["target_offsets"][-1]), np.int32)
        number[kept] = first + np.arange(kept.size)
        linked = piece.arrays["link_entries"][runs(piece.arrays["link_offsets"], own.rows)]
        links[ranges(offsets[own.place], counts[own.place])] = number[linked]
        first += kept.size
    context.write(link_offsets=offsets, link_entries=links)
