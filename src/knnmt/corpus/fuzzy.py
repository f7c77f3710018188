"""How much two texts are alike, as a translation memory's fuzzy matches are: by the letters that they share."""

from collections import Counter

FUZZY = 0.7  # similarity from which one text counts as a version of the other


def similarity(one: str, other: str) -> float:
    """From 0 to 1: twice the trigrams of letters that both have, of all trigrams (Dice). Case does not count."""
    ours, theirs = _trigrams(one), _trigrams(other)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.lower().split())} "  # the beginnings of texts count, and those of short ones
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))
