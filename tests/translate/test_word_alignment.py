"""Words are linked as the store's aligner links their tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.model.checkpoint import load
from knnmt.text.words import diagonal, words
from knnmt.translate.word_alignment import WordAligner


def spelt(text: str) -> list[str]:
    return [text[begin:end] for begin, end in words(text)]


def test_words_are_runs_of_letters_and_single_marks() -> None:
    assert spelt("Klicken Sie, z.B., auf „Speichern“ (2.5 %)!") == (
        ["Klicken", "Sie", ",", "z.B", ".", ",", "auf", "„", "Speichern", "“", "(", "2.5", "%", ")", "!"]
    )
    assert spelt("don’t e-mail a_b") == ["don’t", "e-mail", "a_b"]
    assert spelt("我爱Python 3") == ["我", "爱", "Python", "3"]


@given(st.text())
def test_every_character_but_space_is_in_one_word(text: str) -> None:
    assert "".join(spelt(text)) == "".join(letter for letter in text if not letter.isspace())


@given(st.integers(0, 9), st.integers(0, 9))
def test_by_place_every_word_has_a_link_and_none_cross(n: int, m: int) -> None:
    links = diagonal("a " * n, "b " * m)
    if n and m:
        assert {i for i, _ in links} == set(range(n))
        assert {j for _, j in links} == set(range(m))
        assert links == sorted(links, key=lambda link: link[::-1])
    else:
        assert links == []


def test_without_a_store_links_are_by_place(model_folder: Callable[[str], Path]) -> None:
    align = WordAligner(load(model_folder("marian"), device="cpu"), None)
    assert align("der Hund", "the dog") == [(0, 0), (1, 1)]


@pytest.mark.parametrize("family", ["marian", "m2m_100"])
def test_words_are_linked_as_their_tokens_are(family: str, model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    from knnmt.build.settings import BuildSettings
    from knnmt.datastore import Datastore

    from ..build.examples import parallel_text

    folder = model_folder(family)
    store = Datastore.build(
        parallel_text(tmp_path / "train.tsv", 300), out=tmp_path / "store", langs="de-en", model=folder,
        settings=BuildSettings(clean=None, cluster_size=16), workers=1,
    )  # fmt: skip
    align = WordAligner(load(folder, device="cpu", langs="de-en"), store)
    found = align("der große Hund schläft im Garten .", "in garden sleeps the dog .")
    assert {(2, 4), (3, 2), (4, 0), (5, 1), (6, 5)} <= set(found)
    assert align("Katze", "") == align("", "cat") == []
