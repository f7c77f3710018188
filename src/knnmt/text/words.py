"""The words of a text, and links between those of a text and its translation."""

import re

from knnmt.corpus.clean import UNSPACED

Link = tuple[int, int]
"""Positions of a source word and of a target word, from 0."""

# each character of a script written without spaces counts as a word
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’\-.][^\W{UNSPACED}]+)*|[^\w\s]")


def words(text: str) -> list[tuple[int, int]]:
    """Start and end of each word of a text; a punctuation mark is a word."""
    return [found.span() for found in WORD.finditer(text)]


def diagonal(source: str, target: str) -> list[Link]:
    """Links by relative position: each word of the longer side with the word at the same fraction of the other."""
    n, m = len(words(source)), len(words(target))
    longer = max(n, m)
    return [(place * n // longer, place * m // longer) for place in range(longer)] if n and m else []
