"""Checks of what a translation keeps: placeholders, tags and inline codes, escapes, addresses, code, numbers."""

import re
from collections import Counter
from collections.abc import Iterator

from knnmt.checks.pair import Pair, Side, compared
from knnmt.text import numbers as figures
from knnmt.text.accelerator import accelerator
from knnmt.text.check import POSITIONAL, empty_pairs
from knnmt.text.held import Held, Item
from knnmt.text.icu import skeleton
from knnmt.text.spans import TIME
from knnmt.text.unit import items_of

PLACEHOLDERS = ("printf", "qt", "percent", "brace", "mustache", "dollar", "colon")
NUMBERED = re.compile(r"(?<=^%)\d+\$")
READ = re.compile(r"""(\s(?:title|alt|placeholder|aria-label))\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
DIGITS = re.compile(r"\d+")
INSIDE = re.compile(r"(?<=\d)[.,:/-](?=\d)")  # a number


def placeholders(pair: Pair) -> Iterator[str]:
    """The same placeholders; those without numbers in the same order; the same arguments of ICU messages."""
    ours, theirs = pair.source.raws(*PLACEHOLDERS), pair.target.raws(*PLACEHOLDERS)
    if any(map(NUMBERED.search, ours)) != any(map(NUMBERED.search, theirs)):  # `%s %s` may become `%2$s %1$s`
        ours, theirs = ([NUMBERED.sub("", raw) for raw in raws] for raws in (ours, theirs))
    elif Counter(ours) == Counter(theirs):
        in_order = [[raw for raw in raws if POSITIONAL.fullmatch(raw)] for raws in (ours, theirs)]
        if in_order[0] != in_order[1]:
            yield "placeholders without numbers are in another order"
    # what has a name or a number may be used again
    yield from compared(*([*dict.fromkeys(raws), *_again(raws)] for raws in (ours, theirs)))
    yield from compared(*([skeleton(raw) for raw in side.raws("icu")] for side in (pair.source, pair.target)))


def _again(raws: list[str]) -> list[str]:
    """The placeholders that take the next argument, beyond the first of each."""
    in_order = Counter(raw for raw in raws if POSITIONAL.fullmatch(raw))
    return list((in_order - Counter(in_order.keys())).elements())


def tags(pair: Pair) -> Iterator[str]:
    """The same tags and inline codes, in pairs that nest."""
    ours, theirs = _marked(pair.source), _marked(pair.target)
    different = list(compared(*([_tag(held) for held in items if isinstance(held, Held)] for items in (ours, theirs))))
    yield from different
    if not different:
        if _pairs(ours) != _pairs(theirs):
            yield "tags are not nested as in the source"
        elif len(empty_pairs(theirs)) > len(empty_pairs(ours)):
            yield "a pair of tags is empty"


def _marked(side: Side) -> list[Item]:
    return items_of(side.inline, [span for span in side.spans if span.kind == "tag"])


def _tag(held: Held) -> str:
    """A tag without what is translated in it."""
    return READ.sub(r"\1", " ".join(held.raw.split()))


def _pairs(items: list[Item]) -> Counter[tuple[str, str]]:
    held = {item.number: item for item in items if isinstance(item, Held)}
    opening = [one for one in held.values() if one.partner is not None and one.partner > one.number]
    return Counter((_tag(one), _tag(held[one.partner])) for one in opening if one.partner is not None)


def escapes(pair: Pair) -> Iterator[str]:
    """The same entities and escapes."""
    return compared(pair.source.raws("entity", "escape"), pair.target.raws("entity", "escape"))


def addresses(pair: Pair) -> Iterator[str]:
    """The same addresses of pages and people."""
    return compared(pair.source.raws("url", "email"), pair.target.raws("url", "email"))


def code(pair: Pair) -> Iterator[str]:
    """All code, names of files, options and identifiers of the source."""
    kinds = ("code", "path", "option", "identifier", "hex")
    return (f"{raw} is missing" for raw in pair.source.raws(*kinds) if raw not in pair.target.text)


def numbers(pair: Pair) -> Iterator[str]:
    """The same numbers: in the same digits, however they are grouped, or in words."""
    yield from (f"{number} is missing" for number in _lost(pair.source, pair.target))
    yield from (f"{number} is not in the source" for number in _lost(pair.target, pair.source))


def _lost(side: Side, other: Side) -> Iterator[str]:
    """The numbers of a text that the other one has neither as a whole nor in parts: 01.02.2024 may be 2/1/2024."""
    spans = [span for span in side.spans if span.kind in ("number", "version")]
    # 17 Uhr may be 5 pm
    mine = [side.text[span.start : span.end] for span in spans if not TIME.match(side.text, span.end)]
    for number in figures.lost(mine, other.prose, other.language):
        if figures.lost(DIGITS.findall(number), INSIDE.sub("; ", other.prose), other.language):
            yield number


def accelerators(pair: Pair) -> Iterator[str]:
    """An accelerator if the source has one."""
    ours, theirs = (accelerator(side.text, side.spans) for side in (pair.source, pair.target))
    if ours is not None and theirs is None and ours.mark not in pair.target.text:
        yield f"the accelerator ({ours.mark}) is missing"
    elif theirs is not None and ours is None and theirs.mark not in pair.source.text:
        yield f"the accelerator ({theirs.mark}) is not in the source"
