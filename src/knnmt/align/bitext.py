"""Parallel segments of token ids, and links between their positions, as flat arrays with offsets."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from knnmt.csr import Int32, Int64, offsets_of, rises, runs
from knnmt.errors import DataError


@dataclass(frozen=True, eq=False)
class Bitext:
    """Parallel segments of token ids, with `</s>` if it is to be aligned.

    source_ids: (S,) int32; source_offsets: (N + 1,) int64, from 0 to S; the target side likewise
    """

    source_ids: Int32
    source_offsets: Int64
    target_ids: Int32
    target_offsets: Int64

    def __post_init__(self) -> None:
        source, target = self.arrays[:2], self.arrays[2:]
        for side, (ids, offsets) in (("source", source), ("target", target)):
            if ids.size and ids.min() < 0:
                raise DataError(f"bitext: {side} id {ids.min()} is negative")
            if not rises(offsets, ids.size):
                raise DataError(f"bitext: {side} offsets do not ascend from 0 to {ids.size}, the number of {side} ids")
        if source[1].size != target[1].size:
            raise DataError(f"bitext: {source[1].size - 1} source segments, but {target[1].size - 1} target segments")

    def __len__(self) -> int:
        return self.source_offsets.size - 1

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Self:
        """Concatenate a stream of (source ids, target ids); only the arrays are held in memory."""
        ids = array("i"), array("i")
        lengths = array("q"), array("q")
        for pair in pairs:
            for side in (0, 1):
                ids[side].extend(pair[side])
                lengths[side].append(len(pair[side]))
        sides = [(np.array(ids[side], np.int32), offsets_of(np.array(lengths[side], np.int64))) for side in (0, 1)]
        return cls(*sides[0], *sides[1])

    def take(self, segments: Int64) -> Self:
        """Some of the segments: (n,) int64."""
        source, target = (
            (ids[runs(offsets, segments)], offsets_of(np.diff(offsets)[segments]))
            for ids, offsets in (self.arrays[:2], self.arrays[2:])
        )
        return type(self)(*source, *target)

    def span(self, first: int, last: int) -> Self:
        """The segments first..last."""
        source, target = (
            (ids[offsets[first] : offsets[last]], offsets[first : last + 1] - offsets[first])
            for ids, offsets in (self.arrays[:2], self.arrays[2:])
        )
        return type(self)(*source, *target)

    @property
    def arrays(self) -> tuple[Int32, Int64, Int32, Int64]:
        """The four fields, in order."""
        return self.source_ids, self.source_offsets, self.target_ids, self.target_offsets

    @property
    def source_lengths(self) -> Int64:
        """Tokens of each source segment: (N,) int64."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> Int64:
        """Tokens of each target segment: (N,) int64."""
        return np.diff(self.target_offsets)

    @property
    def cells(self) -> Int64:
        """Offsets of each segment's cells: (N + 1,) int64."""
        return offsets_of(self.source_lengths * self.target_lengths)


@dataclass(frozen=True, eq=False)
class Links:
    """Aligned positions, from 0 in each segment, sorted by target and then by source.

    source, target: (L,) int32; offsets: (N + 1,) int64
    """

    source: Int32
    target: Int32
    offsets: Int64

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def linked(self) -> int:
        """The number of target tokens that have a link."""
        first = np.diff(self.target, prepend=-1) != 0
        first[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        return int(first.sum())

    def segment(self, index: int) -> list[tuple[int, int]]:
        """The linked (source, target) positions of one segment."""
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return list(zip(self.source[part].tolist(), self.target[part].tolist(), strict=True))
