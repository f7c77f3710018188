"""A sealed part of a store, opened: arrays are mapped into memory, and checked, when they are first asked for."""

from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from knnmt.corpus.segment import Segment
from knnmt.errors import StoreError
from knnmt.store import digests
from knnmt.store.manifest import SealedPart, expect_checksum
from knnmt.store.schema import QUANTIZED, open_array

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class Part:
    """A part: `part["target_ids"]` is an array, whose segments and entries are numbered from 0.

    first_segment, first_entry: the numbers that its first segment and entry have in the store
    """

    def __init__(self, folder: Path, sealed: SealedPart, first_segment: int = 0, first_entry: int = 0) -> None:
        self.folder, self.sizes, self.files = folder, sealed.sizes, sealed.files
        self.first_segment, self.first_entry = first_segment, first_entry
        self._open: dict[str, NDArray[Any]] = {}
        self._made_digests: dict[str, tuple[digests.Digests, digests.Int32]] = {}

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self.files

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._open:
            if name not in self:
                raise StoreError(f"{self.folder} was built without {name}: build the store again for this system")
            self._open[name] = open_array(self.folder / f"{name}.npy", name, self.sizes)
        return self._open[name]

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The arrays that an array is kept as: itself, or its quantized form; none where it has neither."""
        quantized = QUANTIZED.get(name, ())
        return (name,) if name in self else quantized if all(one in self for one in quantized) else ()

    def provides(self, name: str) -> bool:
        """Whether it has an array, or all of its quantized form."""
        return bool(self.stored_as(name))

    def file(self, name: str) -> Path:
        """A file that is no array, after its checksum: what reads it may trust its content."""
        if name not in self.files:
            raise StoreError(f"{self.folder} was built without {name}")
        expect_checksum(self.folder / name, self.files[name])
        return self.folder / name

    # --------------------------------------------------------------------------------- texts, by the part's numbers

    def segment(self, number: int) -> Segment:
        """A segment of the part, by its number from 0."""
        try:
            return segment_of(self, number)
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.folder} is corrupt: segment {number} is not valid UTF-8") from error

    def target_ids(self, number: int) -> list[int]:
        """The target tokens of a segment, `</s>` at the end."""
        begin, end = self["target_offsets"][number : number + 2].tolist()
        ids: list[int] = self["target_ids"][begin:end].tolist()
        return ids

    def saying(self, side: Side, text: str) -> list[int]:
        """The numbers of the segments with this very text as their source or target, white space aside."""
        wanted = digests.one_line(text)
        numbers = digests.candidates(*self._digests(side), text)
        return [number for number in numbers if digests.one_line(getattr(self.segment(number), side)) == wanted]

    def _digests(self, side: Side) -> tuple[digests.Digests, digests.Int32]:
        """Digests of the texts of a side; made here for a part that was sealed without."""
        if f"{side}_digests" in self:
            return self[f"{side}_digests"], self[f"{side}_order"]
        if side not in self._made_digests:
            texts = (getattr(self.segment(number), side) for number in range(self.sizes["segments"]))
            self._made_digests[side] = digests.index(map(digests.digest, texts))
        return self._made_digests[side]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The segments that came with an id, by it; the last of several with the same."""
        bounds = self["text_offsets"]
        named = np.flatnonzero(bounds[4::4] > bounds[3::4])
        text = self["text"]
        ids = (bytes(text[bounds[4 * n + 3] : bounds[4 * n + 4]]) for n in named.tolist())
        return {key.decode(errors="replace"): number for key, number in zip(ids, named.tolist(), strict=True)}


def segment_of(arrays: Any, number: int) -> Segment:
    """A segment from the arrays of its texts."""
    text, offsets = arrays["text"], arrays["text_offsets"][4 * number : 4 * number + 5].tolist()
    source, target, origin, key = (bytes(text[start:stop]).decode() for start, stop in pairwise(offsets))
    return Segment(source, target, origin, key or None)
