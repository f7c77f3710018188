"""Fuzzy matches equal those of comparing every segment."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.corpus import Segment
from knnmt.store.numbering import Match
from knnmt.translate.fuzzy import BITS, NEARLY, FuzzyIndex, best_matches, words_of

from ..oracle import fuzzy as oracle


class Standin:
    """Segments by their numbers, which are not in a row."""

    def __init__(self, sources: list[str]) -> None:
        self.by_number = {3 * number: Segment(source, source.upper()) for number, source in enumerate(sources)}

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        return iter(self.by_number.items())

    def segment(self, number: int) -> Segment:
        return self.by_number[number]

    def matches(self, text: str) -> list[Match]:
        return [Match(number, one) for number, one in self.by_number.items() if one.source == text]


def made(*sources: str) -> Any:
    return Standin(list(sources))


texts = st.lists(st.sampled_from("a b c d e f".split()), max_size=9).map(" ".join)


@settings(max_examples=200, deadline=None)  # the first compiles
@given(st.lists(texts, max_size=12), st.lists(texts, min_size=1, max_size=4), st.sampled_from([0.5, 0.7, 0.9]))
def test_the_best_of_all(sources: list[str], asked: list[str], least: float) -> None:
    for text, found in zip(asked, best_matches(made(*sources), asked, least), strict=True):
        number, score = oracle.best(words_of(text), [words_of(source) for source in sources], least)
        if text in sources:
            assert found is not None
            assert found == (1.0, Segment(text, text.upper()))
        elif number < 0:
            assert found is None
        else:
            assert found is not None
            assert found.segment.source == sources[number]
            assert found.score == pytest.approx(min(score, NEARLY))


def test_long_texts() -> None:
    rng = np.random.default_rng(0)
    words = [str(word) for word in rng.integers(0, 40, 3 * BITS)]
    sources = [" ".join(word for word in words if rng.random() > share) for share in (0.1, 0.3, 0.6)]
    (found,) = best_matches(made(*sources), [" ".join(words)])
    number, score = oracle.best(words, [source.split() for source in sources], 0.5)
    assert found is not None
    assert found.segment.source == sources[number]
    assert found.score == pytest.approx(score)


def test_case_and_punctuation() -> None:
    index = FuzzyIndex(made("Klicken Sie hier.", "Datei speichern", "保存文件"))
    found = index.best(["Klicken Sie hier.", "klicken Sie hier!", "Klicken Sie dort.", "Konto", "!", "", "保存檔件"])
    scores = [None if each is None else round(each.score, 2) for each in found]
    assert scores == [1.0, 0.99, 0.67, None, None, None, 0.75]
