"""Fuzzy matches by comparing a text with every segment, by the textbook's distance."""

from collections.abc import Sequence


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The word-level Levenshtein distance."""
    row = list(range(len(other) + 1))
    for number, word in enumerate(one, start=1):
        new = [number]
        for place, another in enumerate(other):
            new.append(min(row[place] + (word != another), row[place + 1] + 1, new[place] + 1))
        row = new
    return row[-1]


def best(words: Sequence[str], segments: Sequence[Sequence[str]], least: float) -> tuple[int, float]:
    """The number and score of the best segment, of several the first; -1 where none scores `least`."""
    scores = [1 - distance(words, each) / max(len(words), len(each), 1) for each in segments]
    top = max(scores, default=0.0)
    return (scores.index(top), top) if top >= least and words else (-1, 0.0)
