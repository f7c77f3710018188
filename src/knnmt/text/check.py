"""The check of a translation against its source: the same protected spans, in an order that means the same."""

import re
from collections.abc import Sequence

from knnmt.text.held import Held, Item
from knnmt.text.icu import argument, skeleton
from knnmt.text.spans import ON, find

# what a translation must not have of its own
INVENTED = ON & {
    "printf",
    "qt",
    "brace",
    "mustache",
    "percent",
    "dollar",
    "icu",
    "tag",
    "entity",
    "escape",
    "url",
    "email",
}
# the arguments of these are taken in order
POSITIONAL = re.compile(
    r"%[-+#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSp@]|\{(?:[:!][^{}]*)?\}"
)


def invented(text: str) -> list[str]:
    """Placeholders, tags and the like of a text; of an ICU message each once, and of its branches what they have."""
    spans = find(text, INVENTED)
    raws = [text[span.start : span.end] for span in spans]
    if not any(span.kind == "icu" for span in spans):
        return raws
    found: dict[str, None] = {}
    for raw, span in zip(raws, spans, strict=True):
        inside = argument(text, span.start) if span.kind == "icu" else None
        found[skeleton(raw) if span.kind == "icu" else raw] = None
        for branch in inside.branches if inside is not None else ():
            found |= dict.fromkeys(invented(text[branch.start : branch.end]))
    return list(found)


def problem(source: Sequence[Item], target: Sequence[Item]) -> str:
    """What is wrong with a translation; "" if nothing is."""
    expected = [item for item in source if isinstance(item, Held)]
    found = [item for item in target if isinstance(item, Held)]
    numbers = {item.number for item in found}
    for held in expected:
        if held.kind != "number" and held.number not in numbers:
            return f"{held.raw} is missing"
    in_order = [item.number for item in found if POSITIONAL.fullmatch(item.raw)]
    if in_order != sorted(in_order):
        return "placeholders without numbers are in another order"
    return "" if _nested(found) and _filled(source, target) else "tags are not nested as in the source"


def _nested(found: Sequence[Held]) -> bool:
    """Whether each pair opens before it closes, and none closes inside another that it did not open in."""
    here = {held.number for held in found}
    stack: list[int] = []
    for held in found:
        if held.partner is None or held.partner not in here:
            continue
        if held.partner > held.number:
            stack.append(held.number)
        elif not stack or stack.pop() != held.partner:
            return False
    return not stack


def _filled(source: Sequence[Item], target: Sequence[Item]) -> bool:
    """Whether no pair is empty that holds something in the source."""
    return not empty_pairs(target) - empty_pairs(source)


def empty_pairs(items: Sequence[Item]) -> set[int]:
    """The numbers of opening tags whose pairs have nothing between them."""
    found = set()
    opened: Held | None = None
    for item in items:
        if isinstance(item, str):
            opened = opened if not item.strip() else None
            continue
        if opened is not None and item.partner == opened.number:
            found.add(opened.number)
        opened = item if item.partner is not None and item.partner > item.number else None
    return found
