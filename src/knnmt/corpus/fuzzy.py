"""Fuzzy matching of texts, as in translation memories, by character trigrams."""

from collections import Counter

FUZZY = 0.7  # minimum similarity of a fuzzy match


def similarity(one: str, other: str) -> float:
    """The Dice coefficient of character trigrams, from 0 to 1, ignoring case."""
    ours, theirs = _trigrams(one), _trigrams(other)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.lower().split())} "  # padded, so that short texts have trigrams too
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))
