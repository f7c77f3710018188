"""The words of a text, and links between those of a text and its translation."""

import re

from knnmt.corpus.clean import UNSPACED
from knnmt.text.spans import ON, find

Link = tuple[int, int]
"""Positions of a source word and of a target word, from 0."""
Pair = tuple[str, str]
"""A text and its translation."""

_LETTER = re.compile(r"[^\W\d_]")
_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*://|mailto:|www\.)\S*\s*", re.IGNORECASE)

# each character of a script written without spaces counts as a word
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’\-.][^\W{UNSPACED}]+)*|[^\w\s]")

WHOLE = ON - {"number", "script", "tag"}  # spans that nothing may be put into


def words(text: str) -> list[tuple[int, int]]:
    """Start and end of each word of a text; a punctuation mark is a word, and so is a protected span."""
    found: list[tuple[int, int]] = []
    at = 0
    for span in find(text, WHOLE):
        found += (word.span() for word in WORD.finditer(text, at, span.start))
        found.append((span.start, span.end))
        at = span.end
    return found + [word.span() for word in WORD.finditer(text, at)]


def diagonal(source: str, target: str) -> list[Link]:
    """Links by relative position: each word of the longer side with the word at the same fraction of the other."""
    n, m = len(words(source)), len(words(target))
    longer = max(n, m)
    return [(place * n // longer, place * m // longer) for place in range(longer)] if n and m else []


def is_text(value: str) -> bool:
    """Whether there is anything to translate: letters, and not only an address."""
    return bool(_LETTER.search(value)) and not _ADDRESS.fullmatch(value)
