"""Texts that stand in a store: exactly, whatever their case and punctuation, or nearly, by the words they share."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.overlap import Overlaps, overlaps

from .build.examples import written
from .oracle import datastore

PAIRS = [
    ("Der Hund läuft im Garten.", "The dog runs in the garden."),
    ("Klicken Sie auf die Schaltfläche, um die Datei zu speichern.", "Click the button to save the file."),
    ("Ja!", "Yes!"),
    ("der hund läuft im garten", "a dog is running in a garden"),
    ("Klicken Sie auf die Schaltfläche, um die Datei zu drucken.", "Click the button to print the file."),
    ("…", "…"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    """A store of these texts; segment n has n + 1 entries."""
    segments = [
        datastore.Segment([1], [1] * n + [0], [(0, 0)], np.zeros((1, 2)), np.zeros((n + 1, 2)))
        for n in range(len(PAIRS))
    ]
    arrays = datastore.build(segments, {(n, 0): 0 for n in range(len(PAIRS))}, 2, 9)
    texts = [field.encode() for source, target in PAIRS for field in (source, target, "file.tsv", "")]
    arrays["text"] = np.frombuffer(b"".join(texts), np.uint8)
    arrays["text_offsets"] = np.cumsum([0, *map(len, texts)])
    return written(arrays, tmp_path_factory.mktemp("overlap") / "store", vocabulary=2)


def test_case_and_punctuation_do_not_hide_a_text(store: Datastore) -> None:
    found = overlaps(store, ["DER HUND — läuft im Garten?!", "Ja", "  ja. ", "Nein", "…", ""])
    assert found == Overlaps({0: [0, 3], 1: [2], 2: [2]}, {})
    assert found.count == 3


def test_a_text_with_most_of_its_words_in_common_is_near(store: Datastore) -> None:
    # of ten words one at the end is other: of nine threes in a row in both texts together, seven are shared
    near = "Klicken Sie auf die Schaltfläche, um die Datei zu löschen."
    found = overlaps(store, [near, "Klicken Sie auf die Datei.", "Hund läuft im Garten", "Schaltfläche"])
    assert found == Overlaps({}, {0: [1, 4]})
    assert found.count == 1


def test_a_text_that_stands_there_is_not_also_near(store: Datastore) -> None:
    found = overlaps(store, [PAIRS[1][0].upper()])
    assert found == Overlaps({0: [1]}, {})


def test_the_target_side_is_compared_where_asked_for(store: Datastore) -> None:
    assert overlaps(store, ["yes"], side="target") == Overlaps({0: [2]})
    assert overlaps(store, ["yes"]) == Overlaps()


def test_no_text_or_none_in_common_finds_nothing(store: Datastore) -> None:
    for texts in ([], ["", " "], ["Etwas ganz anderes steht hier in diesem Text"]):
        found = overlaps(store, texts)
        assert found == Overlaps()
        assert found.segments == frozenset()


def test_the_segments_are_those_of_all_texts_each_once(store: Datastore) -> None:
    found = overlaps(
        store, ["Ja.", "Der Hund läuft im Garten", "Klicken Sie auf die Schaltfläche, um die Datei zu lesen"]
    )
    assert found.segments == {0, 1, 2, 3, 4}
    found = overlaps(store, ["Ja.", "Der Hund läuft im Garten", "Nein"])
    assert found.segments == {0, 2, 3}
    assert str(found) == "2 word for word and 0 nearly"


class Texts:
    """All of a store that is looked at here."""

    def __init__(self, sources: list[str]) -> None:
        self.sources = sources

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        return ((number, Segment(source, "", "", None)) for number, source in enumerate(self.sources))


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=9)
MARKED = st.builds(
    lambda words, mark, upper: mark.join(words).upper() if upper else mark.join(words),
    WORDS, st.sampled_from([" ", ", ", " - "]), st.booleans(),
)  # fmt: skip


@given(st.lists(MARKED, max_size=8), st.lists(MARKED, max_size=5))
def test_all_is_found_that_comparing_each_with_each_finds(sources: list[str], texts: list[str]) -> None:
    def words(text: str) -> list[str]:
        return [letter for letter in text.lower() if letter in "abc"]

    def grams(text: str) -> set[str]:
        joined = "".join(words(text))
        return {joined[at : at + 3] for at in range(len(joined) - 2)}

    exact: dict[int, list[int]] = {}
    near: dict[int, list[int]] = {}
    for number, text in enumerate(texts):
        same = [place for place, source in enumerate(sources) if words(text) and words(source) == words(text)]
        alike = [
            place
            for place, source in enumerate(sources)
            if (together := grams(text) | grams(source)) and 10 * len(grams(text) & grams(source)) >= 7 * len(together)
        ]
        if same:
            exact[number] = same
        elif alike:
            near[number] = alike
    assert overlaps(cast(Datastore, Texts(sources)), texts) == Overlaps(exact, near)


def test_a_store_finds_its_own_segments(store: Datastore) -> None:
    found = overlaps(store, [segment.source for segment in store.segments()])
    assert set(found.exact) == {0, 1, 2, 3, 4}  # and not the one without words
    assert found.exact[0] == found.exact[3] == [0, 3]
