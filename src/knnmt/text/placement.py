"""Placement of tags in a translation: around the words that translate theirs, properly nested, none lost."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from knnmt.text.held import Held
from knnmt.text.words import Link, words

FOREIGN = -0.4  # score of a word of its parent inside a tag; its own words score 1
NEAR = 8  # words on each side that decide where an empty tag goes
CLOSING = tuple(",.;:!?)]}…»”")
PARENT = -1
NEED_WORDS = frozenset("a button label".split())  # useless when empty

Mark = str | Held
"""What is placed: as it is written, or a span to write later."""


@dataclass
class Span:
    """A tag and its content: words `first` to `last` of the sentence, and nested spans in order."""

    start: Mark = ""
    end: Mark = ""
    name: str = ""
    visible: bool = False  # it has text of its own, which must not touch the words beside it
    divides: bool = False  # a line break: it needs words on both sides
    begin: int = 0  # in characters
    stop: int = 0
    first: int = 0  # in words
    last: int = 0
    space_before: bool = True
    space_after: bool = False
    inside: list["Span"] = field(default_factory=list)


def number(span: Span, begins: Sequence[int]) -> None:
    """Find the words of a span and of nested spans; a word belongs to the span of its first letter."""
    span.first, span.last = bisect_left(begins, span.begin), bisect_left(begins, span.stop)
    for inner in span.inside:
        number(inner, begins)


def place(root: Span, translation: str, links: Sequence[Link], escape: Callable[[str], str] = str) -> list[Mark]:
    """The translation in pieces of text, escaped, with all tags between them.

    root: holds the tags of the source, numbered by its words; links: between the words of source and translation
    """
    placement = _Placement(translation, links, escape)
    placement.fill(root, 0, len(placement.words))
    return [mark for mark in placement.out if mark]


class _Placement:
    """Writes one translation with tags. Gap g is the position before word g."""

    def __init__(self, translation: str, links: Sequence[Link], escape: Callable[[str], str]) -> None:
        self.spans = words(translation)
        edges = [0, *(end for _, end in self.spans)]
        self.gaps = [translation[end:begin] for end, (begin, _) in zip(edges, self.spans, strict=False)]
        self.words = [escape(translation[begin:end]) for begin, end in self.spans]
        self.sources: defaultdict[int, list[int]] = defaultdict(list)  # of each target word
        self.targets: defaultdict[int, list[int]] = defaultdict(list)  # of each source word
        for source, target in links:
            if 0 <= target < len(self.spans):
                self.sources[target].append(source)
                self.targets[source].append(target)
        self.out: list[Mark] = []
        self.space = ""  # pending after the last word; end tags go before it
        self.spaced = False  # already written

    def fill(self, span: Span, low: int, high: int) -> None:
        """Write words low to high of a span, with all tags inside it."""
        windows = self._windows(span, low, high)
        ordered = sorted((start, stop, number) for number, (start, stop) in windows.items())
        starts = {start: (stop, number) for start, stop, number in ordered}
        loose: defaultdict[int, list[Span]] = defaultdict(list)
        last, dividing = low, sum(inner.divides for inner in span.inside)
        for number, inner in enumerate(span.inside):
            if number in windows:
                continue
            gap = self._gap(span, number, low, high, ordered)
            if inner.divides:  # leaves words for those that follow
                last = gap = max(last + 1, min(gap, high - dividing))
                dividing -= 1
            loose[min(gap, high)].append(inner)
        here = low
        while True:
            for inner in loose[here]:
                self._put(inner, here)
            if here == high:
                return
            if here in starts:
                stop, number = starts[here]
                inner = span.inside[number]
                self._flush()
                self.out.append(inner.start)
                self.fill(inner, here, stop)
                self.out.append(inner.end)
                here = stop
            else:
                self._flush()
                self.out.append(self.words[here])
                here += 1
                self.space, self.spaced = self.gaps[here] if here < len(self.gaps) else "", False

    def _windows(self, span: Span, low: int, high: int) -> dict[int, tuple[int, int]]:
        """The words that each nested span encloses, as (start, stop); none overlap, and some spans get none."""
        members = {source: n for n, inner in enumerate(span.inside) for source in range(inner.first, inner.last)}
        owners: dict[int, int] = {}  # of each word: a nested span, or PARENT
        for target in range(low, high):
            sources = [source for source in self.sources[target] if span.first <= source < span.last]
            votes = Counter(members.get(source, PARENT) for source in sources)
            if votes:
                owners[target] = max(votes, key=lambda number: (votes[number], number != PARENT))
        served = set(owners.values())
        for number, inner in enumerate(span.inside):
            if inner.name in NEED_WORDS and inner.first < inner.last and number not in served:
                self._lend(span, number, low, high, owners)
        own: defaultdict[int, list[int]] = defaultdict(list)
        for target in sorted(owners):
            own[owners[target]].append(target)
        own.pop(PARENT, None)
        taken = [0, *accumulate(owners.get(target, PARENT) != PARENT for target in range(low, high))]
        parents = [0, *accumulate(owners.get(target) == PARENT for target in range(low, high))]
        return {number: _best_run(places, taken, parents, low) for number, places in own.items()}

    def _lend(self, span: Span, number: int, low: int, high: int, owners: dict[int, int]) -> None:
        """Give an `<a>` whose words were not translated the nearest word that no other span has."""
        inner = span.inside[number]
        share = (inner.first + inner.last - 2 * span.first) / (2 * (span.last - span.first))
        middle = low + int(share * (high - low))
        near = range(max(low, middle - NEAR), min(high, middle + NEAR))
        free = [place for place in near if owners.get(place, PARENT) == PARENT]
        if free:
            owners[min(free, key=lambda place: abs(place - middle))] = number

    def _gap(self, span: Span, number: int, low: int, high: int, others: Sequence[tuple[int, int, int]]) -> int:
        """The gap for an empty tag: next to the translations of its neighbours, and inside no other span.

        others: (start, stop, number) of the spans with words, in order.
        """
        at = span.inside[number].first
        if at <= span.first or at >= span.last:
            return low if at <= span.first else high
        sources = range(max(span.first, at - NEAR), min(span.last, at + NEAR))
        near = [
            (source, target) for source in sources for target in self.targets[source][:NEAR] if low <= target < high
        ]

        def cost(gap: int) -> tuple[float, int]:
            wrong = (abs(source - at + 0.5) + 0.5 for source, target in near if (source < at) != (target < gap))
            return sum(1 / far for far in wrong), gap

        place = min((target + (source < at) for source, target in near), key=cost, default=-1)
        if place < 0:
            place = low + round((at - span.first) / (span.last - span.first) * (high - low))
        other = bisect_left(others, (place,)) - 1  # the last that starts before this gap
        if other >= 0 and place < others[other][1]:
            start, stop, owner = others[other]
            place = start if number < owner else stop
        return place

    def _put(self, span: Span, gap: int) -> None:
        """Write an empty tag, with the spaces around it in the source if the translation allows them."""
        edge = gap in (0, len(self.words))
        between = not edge and bool(self.gaps[gap])
        loose, apart = span.visible or edge or between, span.visible and between
        if span.space_before or apart:
            self._flush(" " if loose and self.out else "")
        self.out.append(span.start)
        self.spaced = self.spaced and not span.visible
        self.fill(span, gap, gap)
        self.out.append(span.end)
        if (span.space_after and loose) or apart:
            self.space, self.spaced = self.space or " ", False

    def _flush(self, space: str = "") -> None:
        """Write the pending space, or this one if none was written since the last word."""
        if not self.spaced:
            self.out.append(self.space or space)
            self.spaced = bool(self.space or space)
        self.space = ""


def _best_run(places: Sequence[int], taken: Sequence[int], parents: Sequence[int], low: int) -> tuple[int, int]:
    """The highest-scoring run of words for a tag: its own (`places`), few of its parent's, none of its siblings'.

    taken, parents: running counts from `low` of words in nested spans, and of words of the parent.
    """
    start, score = places[0], 1.0
    best = score, start, start
    for before, here in pairwise(places):
        left, right = before + 1 - low, here - low
        score += FOREIGN * (parents[right] - parents[left])
        if taken[right] > taken[left] or score < 0:
            start, score = here, 0.0
        score += 1
        best = max(best, (score, start, here), key=lambda run: run[0])
    return best[1], best[2] + 1
