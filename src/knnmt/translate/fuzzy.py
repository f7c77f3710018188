"""Fuzzy matches, as in translation memories: the segments of a store whose source is like a text, by its words.

The score is 1 - distance / words of the longer text, with the word-level Levenshtein distance, ignoring case and
punctuation; a text that the store has verbatim scores 1, and one that differs in case or punctuation only 0.99.

A segment that scores at least `least` shares so many words with the text that it has one of the text's rarest words,
and its length is near the text's. So each text is compared only with the segments that have these words, in order of
their length; the distance takes one step per word, by bits (Myers 1999). The result equals comparing all segments.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import ceil
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from knnmt.corpus.clean import UNSPACED
from knnmt.corpus.segment import Segment
from knnmt.csr import Int64
from knnmt.jit import jit
from knnmt.store.digests import one_line

WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")  # each character of a script written without spaces is a word
LEAST = 0.5  # score of a match
NEARLY = 0.99  # score of a text with the same words, but in other case or with other punctuation
LONGEST = 2000  # words of a text that are compared
BITS = 64  # words of a text that is compared by bits
compiled = jit()


class Fuzzy(NamedTuple):
    """The segment that is most like a text, and its score in 0..1; 1 is an exact match."""

    score: float
    segment: Segment


class Searchable(Protocol):
    """What can be searched: a store, or several, or segments that are in none."""

    def numbered(self) -> Iterable[tuple[int, Segment]]:
        """All segments with their numbers."""

    def segment(self, number: int) -> Segment:
        """A segment by its number."""

    def matches(self, text: str) -> Sequence[Any]:
        """What has exactly this source, the one that counts first in front, each with its `segment`."""


def words_of(text: str) -> list[str]:
    """What is compared: words, in lower case."""
    return WORD.findall(text.casefold())[:LONGEST]


def best_matches(store: Searchable, texts: Sequence[str], least: float = LEAST) -> list[Fuzzy | None]:
    """The best match of each text; None where nothing scores `least`."""
    return FuzzyIndex(store).best(texts, least)


class FuzzyIndex:
    """The words of segments of a store, all current ones if none are named; for texts that come one after the other."""

    def __init__(self, store: Searchable, segments: Iterable[tuple[int, Segment]] | None = None) -> None:
        self._store = store
        self._ids: dict[str, int] = {}
        numbers, rows = list[int](), list[list[int]]()
        ids = self._ids
        for number, segment in store.numbered() if segments is None else segments:
            numbers.append(number)
            rows.append([ids.setdefault(word, len(ids)) for word in words_of(segment.source)])
        self._numbers = np.array(numbers, np.int64)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        order = np.argsort(lengths, kind="stable")  # postings are in the order of lengths
        self._numbers, self._lengths = self._numbers[order], lengths[order]
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        self._words = np.fromiter(chain.from_iterable(rows[place] for place in order), np.int64, int(lengths.sum()))
        self._post, self._post_starts = self._postings()

    def _postings(self) -> tuple[Int64, Int64]:
        """The segments that contain each word, shortest first, and where they begin."""
        owner = np.repeat(np.arange(len(self._lengths)), self._lengths)
        order = np.argsort(self._words, kind="stable")
        words, owner = self._words[order], owner[order]
        new = np.ones(len(words), bool)
        new[1:] = (words[1:] != words[:-1]) | (owner[1:] != owner[:-1])
        counts = np.bincount(words[new], minlength=len(self._ids))
        return owner[new], np.concatenate([[0], np.cumsum(counts)])

    def best(self, texts: Sequence[str], least: float = LEAST) -> list[Fuzzy | None]:
        """The best match of each text; of several the one that counts first (an exact one), or the lowest number."""
        known = {text: self._store.matches(one_line(text)) for text in dict.fromkeys(texts)}
        asked = [text for text, matches in known.items() if not matches]
        found = {text: Fuzzy(1.0, matches[0].segment) for text, matches in known.items() if matches}
        for text, (numbers, scores) in zip(asked, self.search(asked, least), strict=True):
            if len(numbers):
                found[text] = Fuzzy(float(scores[0]), self._store.segment(int(numbers[0])))
        return [found.get(text) for text in texts]

    def search(self, texts: Sequence[str], least: float = LEAST) -> Iterator[tuple[Int64, NDArray[np.float64]]]:
        """For each text the numbers of the segments that score at least `least`, and their scores, best first.

        Of equal scores the lowest number is first. A text that differs in case or punctuation, or in nothing, scores
        `NEARLY`.
        """
        masks = np.zeros(len(self._ids), np.uint64)
        seen = np.full(len(self._lengths), -1, np.int64)
        places, distances = np.empty((2, len(self._lengths)), np.int64)
        sizes = np.diff(self._post_starts)
        for number, text in enumerate(texts):
            words = [self._ids.get(word, -1) for word in words_of(text)]
            # a segment that scores `least` shares this many words with the text, so it has one of the others, or more
            shared = max(1, ceil(least * len(words) - 1e-9))
            rare = sorted(words, key=lambda word: sizes[word] if word >= 0 else 0)[: len(words) - shared + 1]
            probes = np.array(sorted({word for word in rare if word >= 0}), np.int64)
            count = 0
            if len(probes):
                count = _near(
                    np.array(words, np.int64), probes, self._words, self._starts, self._lengths,
                    self._post, self._post_starts, masks, seen, number, least, places, distances,
                )  # fmt: skip
            near, numbers = places[:count], self._numbers[places[:count]]
            scores = np.minimum(1 - distances[:count] / np.maximum(self._lengths[near], max(1, len(words))), NEARLY)
            order = np.lexsort((numbers, -scores))
            yield numbers[order], scores[order]


@compiled
def _near(
    text: Int64, probes: Int64, words: Int64, starts: Int64, lengths: Int64, post: Int64, post_starts: Int64,
    masks: NDArray[np.uint64], seen: Int64, mark: int, least: float, places: Int64, distances: Int64,
) -> int:  # fmt: skip
    """Fill in the places and distances of the segments that score at least `least`; gives their number."""
    size, count = len(text), 0
    shortest, longest = least * size, size / least
    short = size <= BITS
    if short:
        for place in range(size):
            if text[place] >= 0:
                masks[text[place]] |= np.uint64(1) << np.uint64(place)
    row = np.empty(size + 1, np.int64)
    for probe in probes:
        for at in range(post_starts[probe], post_starts[probe + 1]):
            segment = post[at]
            length = lengths[segment]
            if length > longest:
                break
            if length < shortest or seen[segment] == mark:
                continue
            seen[segment] = mark
            longer = max(size, length)
            begin = starts[segment]
            if short:
                distance = _by_bits(size, words, begin, length, masks)
            else:
                distance = _by_rows(text, words, begin, length, row)
            if longer - distance < least * longer:
                continue
            places[count], distances[count] = segment, distance
            count += 1
    if short:
        for place in range(size):
            if text[place] >= 0:
                masks[text[place]] = np.uint64(0)
    return count


@compiled
def _by_bits(size: int, words: Int64, begin: int, length: int, masks: NDArray[np.uint64]) -> int:
    """Levenshtein distance of a text of at most 64 words, which `masks` has the places of (Hyyrö 2003)."""
    one = np.uint64(1)
    last = one << np.uint64(size - 1)
    up, down = ~np.uint64(0), np.uint64(0)
    distance = size
    for place in range(begin, begin + length):
        equal = masks[words[place]]
        diagonal = (((equal & up) + up) ^ up) | equal | down
        plus = down | ~(diagonal | up)
        minus = up & diagonal
        if plus & last:
            distance += 1
        elif minus & last:
            distance -= 1
        plus = (plus << one) | one
        minus = minus << one
        up = minus | ~(diagonal | plus)
        down = plus & diagonal
    return distance


@compiled
def _by_rows(text: Int64, words: Int64, begin: int, length: int, row: Int64) -> int:
    """Levenshtein distance of a longer text, row by row."""
    size = len(text)
    for place in range(size + 1):
        row[place] = place
    for step in range(length):
        word = words[begin + step]
        before = row[0]
        row[0] = step + 1
        for place in range(size):
            above = row[place + 1]
            row[place + 1] = min(before + (text[place] != word), above + 1, row[place] + 1)
            before = above
    return int(row[size])
