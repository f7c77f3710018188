"""A text as the pipeline sees it: sentences, with protected spans, and what stands between them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from knnmt.text import icu
from knnmt.text.accelerator import Accelerator, accelerator
from knnmt.text.held import Held, Item, has_letters
from knnmt.text.inline import Code, Inline
from knnmt.text.sentences import sentence_ends
from knnmt.text.spans import Span, find

TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
BREAK = re.compile(r"(?<![^\S\n])[^\S\n]*\n\s*")
WRAPPED = re.compile(r"[^\n]{25}[\w,][^\S\n]*\n[^\S\n]*(?=[a-zß-öø-ÿ])")  # a line break inside a sentence
ALONE = frozenset("br hr img wbr input".split())  # tags that stand for no word
MOST = 60  # spans of a sentence
OPAQUE = "Xx"  # stands for a span where sentences are found: it may begin one


@dataclass
class Sentence:
    """A sentence, or a line: `core` is to be translated; what stands around it is kept."""

    before: list[Item]
    core: list[Item]
    after: list[Item]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to translate."""
        return not has_letters(self.core)


@dataclass
class Unit:
    """A text with its sentences; `accelerator` is not in them. Those of an ICU message are its branches'."""

    given: Inline
    sentences: list[Sentence]
    accelerator: Accelerator | None = None
    message: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one sentence without anything to protect."""
        if len(self.sentences) != 1 or self.accelerator is not None:
            return False
        only = self.sentences[0]
        return not only.before and not only.after and len(only.core) == 1 and isinstance(only.core[0], str)

    def target(self, translated: Sequence[Sequence[Item]]) -> Inline:
        """The text with its sentences translated."""
        items: list[Item] = []
        if self.message and all(list(core) == each.core for core, each in zip(translated, self.sentences, strict=True)):
            return self.given
        for sentence, core in zip(self.sentences, translated, strict=True):
            core = icu.escaped(core, self.given.text) if self.message else core
            items += (*sentence.before, *core, *sentence.after)
        return _inline(items, self.accelerator)


def unit_of(source: Inline, kinds: frozenset[str], language: str | None, *, sentences: bool = True) -> Unit:
    """A text in sentences, or lines if those are not to be split; `kinds` are the spans to protect."""
    given = source
    spans = find(source.text, kinds, language) if kinds else []
    if not source.codes and any(span.kind == "icu" for span in spans) and (message := icu.pieces(source.text)):
        return _message(source, message, kinds, language, sentences=sentences)
    mark = accelerator(source.text, spans) if "accelerator" in kinds else None
    if mark is not None:
        source = _without(source, mark.at)
        spans = find(source.text, kinds, language)
    if not spans and not source.codes and "\n" not in source.text:
        pieces: list[list[Item]] = [[source.text]]
        if sentences and (ends := list(sentence_ends(source.text))):
            pieces = [[source.text[a:b]] for a, b in zip([0, *ends], [*ends, len(source.text)], strict=True)]
    else:
        pieces = list(_cut(items_of(source, spans), sentences=sentences))
    return Unit(given, [_peeled(some) for piece in pieces for some in _portions(piece)], mark)


def _message(
    source: Inline, pieces: Sequence[icu.Piece], kinds: frozenset[str], language: str | None, *, sentences: bool
) -> Unit:
    """An ICU message: the sentences of its branches, with the syntax around them."""
    found: list[Sentence] = []
    syntax: list[Item] = []  # before the next sentence
    for piece in pieces:
        if piece.kept:
            syntax.append(piece.text)
            continue
        text = piece.text.replace("''", "'")
        spans = find(text, kinds, language)
        signs = [*icu.GROUP.finditer(text), *(icu.NUMBER.finditer(text) if piece.numbered else ())]
        held = {place for span in spans for place in range(span.start, span.end)}
        spans = sorted(
            [*spans, *(Span(sign.start(), sign.end(), "brace") for sign in signs if sign.start() not in held)]
        )
        inside = _cut(items_of(Inline.plain(text), spans), sentences=sentences)
        some = [_peeled(portion) for each in inside for portion in _portions(each)] or [Sentence([], [], [])]
        some[0].before[:0] = syntax
        found += some
        syntax = []
    found[-1].after += syntax
    return Unit(source, found, message=True)


def whole_unit(source: Inline) -> Unit:
    """A text as one sentence, without the space around it; only inline codes are protected."""
    return Unit(source, [_peeled(items_of(source, ()), breaks=False)])


def _without(source: Inline, at: int) -> Inline:
    """A text without the character at a position."""
    codes = tuple(code._replace(at=code.at - (code.at > at)) for code in source.codes)
    return Inline(source.text[:at] + source.text[at + 1 :], codes)


# ------------------------------------------------------------------------------------------------------ items


def items_of(source: Inline, spans: Sequence[Span]) -> list[Item]:
    """Text, spans and inline codes in turn; a span with a code inside it is text."""
    places = [code.at for code in source.codes]
    free = [span for span in spans if bisect_right(places, span.start) == bisect_left(places, span.end)]
    marks: list[tuple[int, int, Span | int]] = [(place, 0, number) for number, place in enumerate(places)]
    marks += ((span.start, 1, span) for span in free)
    marks.sort(key=lambda mark: mark[:2])
    items: list[Item] = []
    numbers: dict[int, int] = {}  # of the codes
    at = 0
    for count, (place, _, what) in enumerate(marks):
        if place > at:
            items.append(source.text[at:place])
            at = place
        if isinstance(what, Span):
            items.append(Held(source.text[what.start : what.end], what.kind, count))
            at = what.end
        else:
            numbers[what] = count
            items.append(Held(source.codes[what].raw, "code", count, code=source.codes[what]))
    if at < len(source.text):
        items.append(source.text[at:])
    return _paired(items, numbers, source.codes)


def _paired(items: list[Item], numbers: dict[int, int], codes: Sequence[Code]) -> list[Item]:
    """The items with the two tags of each pair knowing each other."""
    partners: dict[int, int] = {}
    for index, code in enumerate(codes):
        if code.pair is not None and 0 <= code.pair < len(codes) and codes[code.pair].pair == index != code.pair:
            partners[numbers[index]] = numbers[code.pair]
    opened: list[tuple[str, int]] = []
    for item in items:
        if isinstance(item, str) or item.kind != "tag" or (tag := TAG_NAME.match(item.raw)) is None:
            continue
        closing, name = tag[1], tag[2].lower()
        if not closing and not item.raw.endswith("/>") and name not in ALONE:
            opened.append((name, item.number))
        elif closing and opened and opened[-1][0] == name:
            other = opened.pop()[1]
            partners |= {other: item.number, item.number: other}
    if not _nests(items, partners):
        return items  # pairs that cross are no pairs
    return [item if isinstance(item, str) else item._replace(partner=partners.get(item.number)) for item in items]


def _nests(items: Sequence[Item], partners: dict[int, int]) -> bool:
    stack: list[int] = []
    for item in items:
        if isinstance(item, str) or item.number not in partners:
            continue
        if partners[item.number] > item.number:
            stack.append(item.number)
        elif not stack or stack.pop() != partners[item.number]:
            return False
    return True


# -------------------------------------------------------------------------------------------------- sentences


def _cut(items: Sequence[Item], *, sentences: bool) -> Iterator[list[Item]]:
    """Cut after sentences and lines that no pair of tags spans; a line break that stays becomes a span."""
    shadow = "".join(map(_shadow, items))
    ends = {found.end() for found in BREAK.finditer(shadow)} - {found.end() for found in WRAPPED.finditer(shadow)}
    if sentences:
        ends |= set(sentence_ends(shadow))
    ends.discard(len(shadow))
    ordered = sorted(ends)
    piece: list[Item] = []
    at = depth = 0
    for item in items:
        closing = isinstance(item, Held) and item.partner is not None and item.partner < item.number
        if at in ends and not depth and piece and not closing:
            yield piece
            piece = []
        if isinstance(item, Held):
            depth += 0 if item.partner is None else -1 if closing else 1
            at += len(_shadow(item))
            piece.append(item)
            continue
        start = 0
        inside = ordered[bisect_right(ordered, at) : bisect_left(ordered, at + len(item))] if not depth else ()
        for end in inside:
            yield [*piece, item[start : end - at]]
            piece, start = [], end - at
        piece.append(item[start:])
        at += len(item)
    if piece:
        yield piece


def _portions(piece: list[Item]) -> Iterator[list[Item]]:
    """A sentence with very many spans in portions; what belongs together need not stay together then."""
    held = [place for place, item in enumerate(piece) if isinstance(item, Held)]
    bounds = [0, *held[MOST::MOST], len(piece)]
    for start, end in pairwise(bounds):
        some = piece[start:end]
        here = {item.number for item in some if isinstance(item, Held)}
        yield (
            [
                item._replace(partner=None) if isinstance(item, Held) and item.partner not in here else item
                for item in some
            ]
            if len(bounds) > 2
            else some
        )


def _shadow(item: Item) -> str:
    """What stands for an item where sentences are found."""
    if isinstance(item, str):
        return item
    return "" if item.kind == "tag" or item.code else item.raw if item.kind == "number" else OPAQUE


def _peeled(items: list[Item], *, breaks: bool = True) -> Sentence:
    """A sentence without the space, the line breaks and the tags around it."""
    core = [item for item in items if item]
    before: list[Item] = []
    after: list[Item] = []
    while core:
        first, last = core[0], core[-1]
        if isinstance(first, str) and first[0].isspace():
            text = first.lstrip()
            before.append(first[: len(first) - len(text)])
            core[:1] = [text] if text else []
        elif isinstance(last, str) and last[-1].isspace():
            text = last.rstrip()
            after.append(last[len(text) :])
            core[-1:] = [text] if text else []
        elif isinstance(first, Held) and isinstance(last, Held) and first.partner == last.number:
            before.append(first)
            after.append(last)
            core = core[1:-1]
        elif isinstance(first, Held) and _edge(first, core):
            before.append(first)
            core = core[1:]
        elif isinstance(last, Held) and _edge(last, core):
            after.append(last)
            core = core[:-1]
        else:
            break
    return Sentence(before, _broken(core) if breaks else core, after[::-1])


def _edge(held: Held, core: Sequence[Item]) -> bool:
    """Whether a span at an edge of a sentence is no part of it: an escape, `<br>`, one tag of a pair."""
    if held.partner is not None:
        return not any(isinstance(item, Held) and item.number == held.partner for item in core)
    tag = TAG_NAME.match(held.raw)
    return held.kind == "escape" or (tag is not None and tag[2].lower() in ALONE)


def _broken(core: list[Item]) -> list[Item]:
    """The items with line breaks as spans of their own."""
    if not any(isinstance(item, str) and "\n" in item for item in core):
        return core
    highest = max((item.number for item in core if isinstance(item, Held)), default=-1)
    found: list[Item] = []
    for item in core:
        if isinstance(item, Held):
            found.append(item)
            continue
        at = 0
        for match in BREAK.finditer(item):
            highest += 1
            found += (item[at : match.start()], Held(match[0], "break", highest))
            at = match.end()
        found.append(item[at:])
    return [item for item in found if item != ""]


def _inline(items: Sequence[Item], mark: Accelerator | None) -> Inline:
    """The text that items make, with the inline codes among them."""
    text = ""
    codes: list[Held] = []
    places: list[int] = []
    broken = False  # behind a line break, which takes the place of a space
    for item in items:
        if isinstance(item, str):
            text += item.lstrip(" ") if broken else item
            broken = broken and not item.strip(" ")
        elif item.code is not None:
            codes.append(item)
            places.append(len(text))
        else:
            broken = item.kind == "break"
            text = (text.rstrip(" ") if broken else text) + item.raw
    if mark is not None:
        text, at = mark.put(text)
        places = [place + (place > at) for place in places]
    index = {held.number: number for number, held in enumerate(codes)}
    originals = sorted(index)  # numbers rise as the codes of the source do
    found = []
    for held, place in zip(codes, places, strict=True):
        assert held.code is not None
        pair = held.code.pair
        known = pair is not None and 0 <= pair < len(originals)
        found.append(held.code._replace(at=min(place, len(text)), pair=index[originals[pair]] if known else pair))  # type: ignore[index]
    return Inline(text, tuple(found))


def cut_text(text: str) -> list[str]:
    """A plain text in lines and sentences, each with the white space behind it: together they are the text."""
    pieces = _cut([text], sentences=True) if text else ()
    return ["".join(item for item in piece if isinstance(item, str)) for piece in pieces]
