"""Checks of whether a text is translated at all: left as it is, far too long or short, with other terms."""

import re
from collections.abc import Iterator

from knnmt.checks.pair import Pair
from knnmt.corpus.clean import UNSPACED

WORDS = 2  # of a source from which a translation that equals it is suspicious: many single words are the same
RATIO = 2.5  # of the lengths
SLACK = 20  # characters that a short text may be longer or shorter by
WORD = re.compile(r"[^\W\d_]{2,}")
DENSE = re.compile(f"[{UNSPACED}]")  # a character that stands for about three Latin ones


def untranslated(pair: Pair) -> Iterator[str]:
    """Neither empty nor equal to the source."""
    source, target = pair.source.text.strip(), pair.target.text.strip()
    if source and not target and not pair.target.inline.codes:
        yield "the translation is empty"
    elif source == target and len(WORD.findall(pair.source.prose)) >= WORDS:
        yield "the translation equals the source"


def length(pair: Pair) -> Iterator[str]:
    """Neither far longer nor far shorter than the source."""
    ours, theirs = (len(text) + 2 * len(DENSE.findall(text)) for text in (pair.source.prose, pair.target.prose))
    if theirs and max(ours, theirs) > RATIO * min(ours, theirs) + SLACK:
        yield f"the translation is {theirs / max(1, ours):.1f} times as long as the source"


def terms(pair: Pair) -> Iterator[str]:
    """The terms of the glossary, and no forbidden ones."""
    if pair.glossary is not None and pair.target.text.strip():
        yield from pair.glossary.check(pair.source.text, pair.target.text)
