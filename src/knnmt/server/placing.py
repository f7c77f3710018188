"""Where the tags of a sentence go in its translation: around the words that translate theirs, none crossed or lost."""

import html
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from knnmt.server.tags import Element, Node, Text, write
from knnmt.server.words import Link, words

FOREIGN = -0.4  # what a word of others costs a tag that takes it in, where its own adds 1
NEAR = 8  # words on each side that say where a tag without words goes
CLOSING = tuple(",.;:!?)]}…»”")
PARENT = -1
NEED_WORDS = frozenset("a button label".split())  # of no use around nothing


@dataclass
class Span:
    """A tag and what it encloses: words `first` to `last` of the sentence, and other spans in their order."""

    start: str = ""
    end: str = ""
    name: str = ""
    shows: bool = False  # it brings text of its own, which is not to touch the words beside it
    begin: int = 0  # in characters
    stop: int = 0
    first: int = 0  # in words
    last: int = 0
    space_before: bool = True
    space_after: bool = False
    inside: list["Span"] = field(default_factory=list)


class Sentence:
    """Inline HTML as its text, which is to be translated, and its tags, which `placed` gives to a translation."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._space = False  # there is space between the text so far and what comes
        self._break = False  # or a line break, which parts words as well
        self._waiting: list[Span] = []  # spans that ended where the text so far does
        self._after_tag = False
        self.root = self._read(Span(), nodes)
        for span in self._waiting:
            span.space_after = True
        self.text = "".join(self._pieces)
        begins = [begin for begin, _ in words(self.text)]
        _number(self.root, begins)

    def _read(self, span: Span, nodes: Sequence[Node]) -> Span:
        span.begin, span.space_before = self._length, self._space or not self._length
        for node in nodes:
            if isinstance(node, Text):
                self._add(html.unescape(node.raw))
                continue
            self._waiting = []
            if isinstance(node, Element) and not node.keep:
                inner = self._read(Span(node.start, node.end, node.name), node.children)
            else:
                inner = self._read(Span("".join(write(node)), shows=isinstance(node, Element)), [])
            span.inside.append(inner)
            self._waiting.append(inner)
            self._after_tag = True
            self._break = self._break or inner.name == "br"
        span.stop = self._length
        return span

    def _add(self, text: str) -> None:
        if not text:
            return
        for span in self._waiting:
            span.space_after = text[0].isspace()
        self._waiting = []
        self._space = self._space or text[0].isspace()
        if plain := " ".join(text.split()):
            # without the tag a space between word and comma would be left over
            needless = self._after_tag and plain.startswith(CLOSING)
            if (self._space or self._break) and self._length and not needless:
                plain = " " + plain
            self._pieces.append(plain)
            self._length += len(plain)
            self._space, self._break, self._after_tag = text[-1].isspace(), False, False

    def placed(self, translation: str, links: Sequence[Link]) -> str:
        """The translation as HTML with all tags; links are between the words of text and translation."""
        return _Placing(translation, links).html(self.root)


def _number(span: Span, begins: Sequence[int]) -> None:
    """Find the words of a span and of those inside; a word belongs where its first letter is."""
    span.first, span.last = bisect_left(begins, span.begin), bisect_left(begins, span.stop)
    for inner in span.inside:
        _number(inner, begins)


class _Placing:
    """Tags on their way into one translation. A gap g is the place before its word g."""

    def __init__(self, translation: str, links: Sequence[Link]) -> None:
        self.spans = words(translation)
        edges = [0, *(end for _, end in self.spans)]
        self.gaps = [translation[end:begin] for end, (begin, _) in zip(edges, self.spans, strict=False)]
        self.words = [html.escape(translation[begin:end], quote=False) for begin, end in self.spans]
        self.sources: defaultdict[int, list[int]] = defaultdict(list)  # of each target word
        self.targets: defaultdict[int, list[int]] = defaultdict(list)  # of each source word
        for source, target in links:
            if 0 <= target < len(self.spans):
                self.sources[target].append(source)
                self.targets[source].append(target)
        self.out: list[str] = []
        self.space = ""  # due between the last word and whatever comes; tags that end stand before it
        self.spaced = False  # written already

    def html(self, root: Span) -> str:
        self._fill(root, 0, len(self.words))
        return "".join(self.out)

    def _fill(self, span: Span, low: int, high: int) -> None:
        """Write the words from low to high, which are the span's, with all tags inside it."""
        windows = self._windows(span, low, high)
        ordered = sorted((start, stop, number) for number, (start, stop) in windows.items())
        starts = {start: (stop, number) for start, stop, number in ordered}
        loose: defaultdict[int, list[Span]] = defaultdict(list)
        for number, inner in enumerate(span.inside):
            if number not in windows:
                loose[self._gap(span, number, low, high, ordered)].append(inner)
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
                self._fill(inner, here, stop)
                self.out.append(inner.end)
                here = stop
            else:
                self._flush()
                self.out.append(self.words[here])
                here += 1
                self.space, self.spaced = self.gaps[here] if here < len(self.gaps) else "", False

    def _windows(self, span: Span, low: int, high: int) -> dict[int, tuple[int, int]]:
        """The words that each span inside goes around, from and to; none overlap, and some spans get none."""
        members = {source: n for n, inner in enumerate(span.inside) for source in range(inner.first, inner.last)}
        owners: dict[int, int] = {}  # of each word: a span inside, or PARENT
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
        """Give a link whose words were not translated the nearest word that is in no other span."""
        inner = span.inside[number]
        share = (inner.first + inner.last - 2 * span.first) / (2 * (span.last - span.first))
        middle = low + int(share * (high - low))
        near = range(max(low, middle - NEAR), min(high, middle + NEAR))
        free = [place for place in near if owners.get(place, PARENT) == PARENT]
        if free:
            owners[min(free, key=lambda place: abs(place - middle))] = number

    def _gap(self, span: Span, number: int, low: int, high: int, others: Sequence[tuple[int, int, int]]) -> int:
        """Where a tag without words goes: where its neighbours went, the nearer the more, and into no other span.

        others: start, stop and number of the spans that have words, in order.
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
        other = bisect_left(others, (place,)) - 1  # the last that starts before that place
        if other >= 0 and place < others[other][1]:
            start, stop, owner = others[other]
            place = start if number < owner else stop
        return place

    def _put(self, span: Span, gap: int) -> None:
        """Write a tag without words, with the spaces that it had where the translation allows them."""
        edge = gap in (0, len(self.words))
        between = not edge and bool(self.gaps[gap])
        loose, apart = span.shows or edge or between, span.shows and between
        if span.space_before or apart:
            self._flush(" " if loose and self.out else "")
        self.out.append(span.start)
        self.spaced = self.spaced and not span.shows
        self._fill(span, gap, gap)
        self.out.append(span.end)
        if (span.space_after and loose) or apart:
            self.space, self.spaced = self.space or " ", False

    def _flush(self, space: str = "") -> None:
        """Write the space that is due, or this one where there has been none since the last word."""
        if not self.spaced:
            self.out.append(self.space or space)
            self.spaced = bool(self.space or space)
        self.space = ""


def _best_run(places: Sequence[int], taken: Sequence[int], parents: Sequence[int], low: int) -> tuple[int, int]:
    """The run of words worth most to a tag: its own (`places`), few of its parent's, none of its siblings'.

    taken, parents: how many words from `low` on are in any span, and how many in none, up to each place.
    """
    start, worth = places[0], 1.0
    best = worth, start, start
    for before, here in pairwise(places):
        left, right = before + 1 - low, here - low
        worth += FOREIGN * (parents[right] - parents[left])
        if taken[right] > taken[left] or worth < 0:
            start, worth = here, 0.0
        worth += 1
        best = max(best, (worth, start, here), key=lambda run: run[0])
    return best[1], best[2] + 1
