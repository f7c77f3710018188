"""A lexicon: the target types that each source type is translated by, counted over word links of parallel text.

It belongs to a model's vocabulary and lies in one safetensors file. `knnmt.model.shortlist` makes shortlists of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from knnmt.align.bitext import Bitext, Links
from knnmt.csr import Int32, Int64, blocks, offsets_of, rises, runs
from knnmt.errors import DataError
from knnmt.settings import Settings
from knnmt.tensor_files import Kind

FILE = Kind("knnmt-lexicon-1", "shortlist", "make it with `knnmt shortlist`")
LEAST = 2  # tokens of a source type from which its links are trusted
WORTH = 0.5  # share of the vocabulary up to which a list is worth its overhead
KINDS = {"offsets": np.int64, "targets": np.int32, "frequent": np.int32, "trusted": np.uint8}


class LexiconSettings(Settings):
    """How large the lists are."""

    per_type: int = Field(default=200, ge=1, le=10_000, description="target types per source type")
    frequent: int = Field(default=16_000, ge=0, description="most frequent target types, part of every list")


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Target types by source type, and those that are frequent; types are token ids of a model.

    vocabulary: the fingerprint of the tokenizer; offsets: (source types + 1,) int64; targets: (P,) int32, ascending in
    a row; frequent: (F,) int32, ascending; trusted: (source types,) uint8, 1 where a type was seen often enough
    """

    vocabulary: str
    offsets: Int64
    targets: Int32
    frequent: Int32
    trusted: NDArray[np.uint8]

    @classmethod
    def count(
        cls, bitext: Bitext, links: Links, vocabulary: str, types: int, settings: LexiconSettings | None = None
    ) -> Self:
        """Count the links of a bitext, of so many source types: of each, the target types with most links."""
        settings = settings or LexiconSettings()
        source, target, counts = _pairs(bitext, links)
        order = np.lexsort((target, -counts, source))  # by source type, most links first
        source, target = source[order], target[order]
        rank = np.arange(source.size) - np.searchsorted(source, source)
        source, target = source[rank < settings.per_type], target[rank < settings.per_type]
        order = np.lexsort((target, source))
        seen = np.bincount(bitext.source_ids, minlength=types)
        uses = np.bincount(bitext.target_ids)
        often = np.argsort(-uses, kind="stable")[: min(settings.frequent, int((uses > 0).sum()))]
        return cls(
            vocabulary,
            offsets_of(np.bincount(source, minlength=types)),
            target[order].astype(np.int32),
            np.sort(often).astype(np.int32),
            (seen >= LEAST).astype(np.uint8),
        )

    def trusts(self, ids: Sequence[int]) -> bool:
        """Whether all these source tokens were seen often enough; a shortlist of others could miss their meaning."""
        return bool(self.trusted[np.asarray(ids)].all())

    def shortens(self, vocabulary: int) -> bool:
        """Whether lists are so much shorter than a vocabulary of this size that steps are faster."""
        return self.frequent.size <= WORTH * vocabulary

    def coverage(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> float:
        """The share of target tokens that are in the list of their source. pairs: source and target ids."""
        listed = total = 0
        for source, target in pairs:
            types = np.asarray(source)
            own = np.concatenate((self.frequent, self.targets[runs(self.offsets, types)], types))
            total += len(target)
            listed += int(np.isin(target, own).sum()) if self.trusts(source) else len(target)
        return listed / max(1, total)

    def save(self, path: str | Path) -> None:
        """Write it to a safetensors file, atomically."""
        FILE.write(Path(path), {name: getattr(self, name) for name in KINDS}, {"vocabulary": self.vocabulary})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a lexicon that `save` wrote."""
        metadata, arrays = FILE.read(Path(path), KINDS)
        if not _consistent(arrays):
            raise FILE.corrupt(Path(path), "inconsistent arrays")
        return cls(metadata.get("vocabulary", ""), **arrays)

    def check(self, vocabulary: str, sizes: tuple[int, int], path: str | Path, model: str) -> None:
        """Refuse it for a model with another vocabulary. sizes: source and target types of the model."""
        highest = max(int(each.max(initial=-1)) for each in (self.targets, self.frequent))
        if self.vocabulary != vocabulary or self.trusted.size != sizes[0] or highest >= sizes[1]:
            raise DataError(
                f"{path}: made for another vocabulary than that of {model}; make one with `knnmt shortlist -m {model}`"
            )


def _pairs(bitext: Bitext, links: Links) -> tuple[Int64, Int64, Int64]:
    """The distinct pairs of linked types: source, target, and how many links each has."""
    width = int(bitext.target_ids.max(initial=0)) + 1
    parts = list(_counted(bitext, links, width))
    keys, inverse = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    counts = np.bincount(inverse, weights=np.concatenate([part[1] for part in parts]))
    return keys // width, keys % width, counts.astype(np.int64)


def _counted(bitext: Bitext, links: Links, width: int) -> Iterator[tuple[Int64, Int64]]:
    """Pairs of types as numbers source·width + target, and their counts, of some segments at a time."""
    yield np.empty(0, np.int64), np.empty(0, np.int64)
    for first, last in blocks(links.offsets):
        some = slice(int(links.offsets[first]), int(links.offsets[last]))
        segment = np.repeat(np.arange(first, last), np.diff(links.offsets[first : last + 1]))
        source = bitext.source_ids[bitext.source_offsets[segment] + links.source[some]].astype(np.int64)
        target = bitext.target_ids[bitext.target_offsets[segment] + links.target[some]]
        yield np.unique(source * width + target, return_counts=True)


def _consistent(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether these arrays are a lexicon's."""
    return (
        all(arrays[name].dtype == kind and arrays[name].ndim == 1 for name, kind in KINDS.items())
        and rises(arrays["offsets"], arrays["targets"].size)
        and arrays["offsets"].size == arrays["trusted"].size + 1
        and all(bool((arrays[name] >= 0).all()) for name in ("targets", "frequent"))
    )
