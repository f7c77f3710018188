"""Overlap of texts with a store, exact or near: tuned or measured on such texts, a store looks better than it is."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from knnmt.store.memories import AnyStore

GRAM = 3  # words of an n-gram
_WORD = re.compile(r"\w+")
NEAR = 0.7  # Jaccard similarity of n-grams from which texts are near


@dataclass(frozen=True)
class Overlaps:
    """The texts, by number, that are in the store, with the segments they are in; near ones are not exact."""

    exact: dict[int, list[int]] = field(default_factory=dict)
    near: dict[int, list[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{len(self.exact):,} word for word and {len(self.near):,} nearly"

    @property
    def count(self) -> int:
        """How many of the texts are in the store, exactly or nearly."""
        return len(self.exact) + len(self.near)

    @property
    def segments(self) -> frozenset[int]:
        """The numbers of all segments of the store that overlap: give them as `left_out` to translate without them."""
        return frozenset(number for found in (self.exact, self.near) for some in found.values() for number in some)


def overlaps(store: AnyStore, texts: Sequence[str], side: Literal["source", "target"] = "source") -> Overlaps:
    """Find texts in a store, ignoring case and punctuation; near ones by shared word trigrams.

    All current segments are compared: taught ones too, removed ones not.
    """
    exact_of: dict[tuple[str, ...], list[int]] = defaultdict(list)
    grams_of: dict[tuple[str, ...], list[int]] = defaultdict(list)
    sizes = []
    for number, text in enumerate(texts):
        words = _words(text)
        grams = _grams(words)
        sizes.append(len(grams))
        if words:
            exact_of[words].append(number)
        for gram in grams:
            grams_of[gram].append(number)
    exact: dict[int, list[int]] = defaultdict(list)
    near: dict[int, list[int]] = defaultdict(list)
    for place, segment in store.numbered():
        words = _words(getattr(segment, side))
        for number in exact_of.get(words, ()):
            exact[number].append(place)
        grams = _grams(words)
        shared = Counter(number for gram in grams for number in grams_of.get(gram, ()))
        for number, count in shared.items():
            if count >= NEAR * (len(grams) + sizes[number] - count) and place not in exact.get(number, ()):
                near[number].append(place)
    return Overlaps(dict(exact), {number: found for number, found in near.items() if number not in exact})


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _grams(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {words[start : start + GRAM] for start in range(len(words) - GRAM + 1)}
