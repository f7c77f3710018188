"""Corpus statistics, as in the paper's Table 1."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from knnmt.corpus.segment import Segment


@dataclass(frozen=True, slots=True)
class Statistics:
    """The rows of Table 1, all for the source side; lengths and frequencies are in tokens.

    The mean frequency is tokens divided by types (the paper's own figures differ, see its Table 1).
    """

    pairs: int
    longest: int
    mean_length: float
    tokens: int
    types: int
    highest_frequency: int
    mean_frequency: float


def statistics(segments: Iterable[Segment], tokenize: Callable[[str], list[str]] = str.split) -> Statistics:
    """Count a stream of segments; only the types are held in memory."""
    frequency: Counter[str] = Counter()
    pairs = longest = 0
    for segment in segments:
        tokens = tokenize(segment.source)
        frequency.update(tokens)
        pairs += 1
        longest = max(longest, len(tokens))
    total = frequency.total()
    return Statistics(
        pairs=pairs,
        longest=longest,
        mean_length=total / pairs if pairs else 0.0,
        tokens=total,
        types=len(frequency),
        highest_frequency=max(frequency.values(), default=0),
        mean_frequency=total / len(frequency) if frequency else 0.0,
    )
