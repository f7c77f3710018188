"""Protected spans of a text: what is no text to translate, and comes out as it went in."""

from typing import NamedTuple

from knnmt.text.inline import Code


class Held(NamedTuple):
    """A protected span, or an inline code, of a text."""

    raw: str  # as it is written
    kind: str  # the rule that found it; `code` for an inline code
    number: int  # its place among those of the text
    partner: int | None = None  # the number of the other one of a pair of tags
    code: Code | None = None


Item = str | Held
"""Text to translate, or a span to keep."""


def written(items: "tuple[Item, ...] | list[Item]") -> str:
    """The text that items make, inline codes left out."""
    return "".join(item if isinstance(item, str) else "" if item.code else item.raw for item in items)


def has_letters(items: "tuple[Item, ...] | list[Item]") -> bool:
    """Whether there is anything to translate."""
    return any(isinstance(item, str) and any(map(str.isalpha, item)) for item in items)
