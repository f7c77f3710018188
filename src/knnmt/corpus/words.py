"""The words of texts, whatever their case and punctuation, and how many of them two texts share."""

import re

ALIKE = 0.7  # of the words of two texts, those that both have: fewer, and one is no version of the other
_WORD = re.compile(r"\w+")


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in lower case."""
    return tuple(_WORD.findall(text.lower()))


def alike(one: str, other: str) -> bool:
    """Whether two texts say nearly the same: «Produkt entfernen» and «Entfernen» do not."""
    ours, theirs = words_of(one), words_of(other)
    shared = sum(word in theirs for word in ours) + sum(word in ours for word in theirs)
    return shared >= ALIKE * (len(ours) + len(theirs))
