"""The spaces beside the tags of a translation: outside, where they are outside in the source; none at its edges, where
the source has none."""

from collections.abc import Sequence

from knnmt.text.held import Held, Item


def spaced(source: Sequence[Item], target: Sequence[Item]) -> list[Item]:
    """The translation with spaces moved out of pairs of tags that have none inside in the source.

    There is no space behind a single code at its beginning, or before one at its end, if the source has none there.
    """
    source, found = ([item for item in items if item] for items in (source, target))
    for outer, inner, edge, strip in ((0, 1, 0, str.lstrip), (-1, -2, -1, str.rstrip)):
        ours, theirs = ([items[outer], items[inner]] if len(items) > 1 else ["", ""] for items in (source, found))
        lone = isinstance(ours[0], Held) and ours[0].code is not None and ours[0].partner is None
        if lone and ours[0] == theirs[0] and isinstance(ours[1], str) and isinstance(theirs[1], str):
            found[inner] = theirs[1] if ours[1][edge].isspace() else strip(theirs[1])
    tight = _tight(source)
    for place, held in enumerate(found):
        if isinstance(held, str) or held.number not in tight:
            continue
        opening = held.partner is not None and held.partner > held.number
        inner, outer = (place + 1, place - 1) if opening else (place - 1, place + 1)
        text = found[inner] if 0 <= inner < len(found) else None
        if not isinstance(text, str) or (stripped := text.lstrip() if opening else text.rstrip()) == text:
            continue
        found[inner] = stripped
        beside = found[outer] if 0 <= outer < len(found) else None
        if isinstance(beside, str) and beside and not (beside[-1] if opening else beside[0]).isspace():
            found[outer] = beside + " " if opening else " " + beside
    return [item for item in found if item]


def _tight(source: Sequence[Item]) -> set[int]:
    """The tags of pairs with text, and no space, right inside."""
    tight = set()
    for place, held in enumerate(source):
        if isinstance(held, Held) and held.partner is not None:
            opening = held.partner > held.number
            inner = source[place + 1 : place + 2] if opening else source[max(0, place - 1) : place]
            if inner and isinstance(inner[0], str) and inner[0]:
                edge = inner[0][0] if opening else inner[0][-1]
                tight |= {held.number} if not edge.isspace() else set()
    return tight
