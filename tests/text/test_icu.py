"""ICU messages: branches are translated, syntax is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.documents import open_document
from knnmt.text.icu import argument, pieces

from ..translate.hostile import Copying, mangled, through

FILES = "{n, plural, =0 {Keine Datei} one {# Datei} other {# Dateien}}"
NESTED = "{who, select, female {{n, plural, one {Ihre Datei} other {Ihre # Dateien}}} other {Dateien}}"


def shown(message: str) -> str:
    """The syntax of a message, and its texts in brackets."""
    found = pieces(message)
    assert found is not None
    return "".join(piece.text if piece.kept else f"[{piece.text}]" for piece in found)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (FILES, "{n, plural, =0 {[Keine Datei]} one {[# Datei]} other {[# Dateien]}}"),
        (" {n,plural,offset:1 other{x}} ", " {n,plural,offset:1 other{[x]}} "),
        (NESTED, "{who, select, female {{n, plural, one {[Ihre Datei]} other {[Ihre # Dateien]}}} other {[Dateien]}}"),
        ("{n, plural, one {a} other {b}}: {m, select, x {c} other {d}}",
         "{n, plural, one {[a]} other {[b]}}: {m, select, x {[c]} other {[d]}}"),
        (" {name} hat {n, plural, one {# Datei} other {# Dateien}}\n",
         " {n, plural, one {[{name} hat # Datei]} other {[{name} hat # Dateien]}}\n"),
        ("Sie haben {n, plural, one {# Datei} other {# Dateien}}.",
         "{n, plural, one {[Sie haben # Datei.]} other {[Sie haben # Dateien.]}}"),
    ],
)  # fmt: skip
def test_syntax_and_texts(message: str, expected: str) -> None:
    assert shown(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        "{name}", "plain", "{n, plural, one {a}}", "{n, plural, one {a} other {b}", "'{'n, plural, other {a}'}'",
        "{n, plural, one {a} one {b} other {c}}", "a {n, plural, other {b}} c {m, plural, other {d}}",
        "Nr. # {n, plural, other {b}}", "Zwei\nZeilen {n, plural, other {b}}",
        "{n, plural, " + " ".join(f"={n} {{a}}" for n in range(99)) + " other {b}}",
    ],
)  # fmt: skip
def test_what_stays_whole(message: str) -> None:
    assert pieces(message) is None


def test_branches_are_translated_one_by_one() -> None:
    lines = Copying(change=lambda text: text.replace("Datei", "File").replace("Keine", "No"))
    (found,) = through(lines, FILES)
    assert found.text == "{n, plural, =0 {No File} one {# File} other {# Fileen}}"
    assert lines.asked == ["Keine Datei", "{name} Datei", "{name} Dateien"]
    assert found.problems == ()
    (found,) = through(Copying(change=lambda text: text.replace("hat", "has")), "{x} hat {n, plural, other {#}}")
    assert (found.text, found.problems) == ("{n, plural, other {{x} has #}}", ())


def test_apostrophes_quote_nothing() -> None:
    lines = Copying(change=lambda text: f"it's '{text}")
    (found,) = through(lines, "{n, plural, other {{name} da}}")
    assert found.text == "{n, plural, other {it's ''{name} da}}"
    assert argument(found.text) is not None
    (found,) = through(Copying(), "{n, plural, other {so''s ist}}")
    assert found.text == "{n, plural, other {so''s ist}}"


@given(st.sampled_from([FILES, NESTED, "Sie {n, plural, one {sehen { x }} other {%s}} hier"]), st.integers(0, 10**6))
def test_syntax_survives_any_translation(message: str, seed: int) -> None:
    (found,) = through(Copying(change=mangled(seed)), message)
    if found.text == message:
        return
    ours, theirs = (argument(text) for text in (message, found.text))
    assert theirs is not None
    if ours is not None:  # else text was moved into the branches
        assert [branch.selector for branch in ours.branches] == [branch.selector for branch in theirs.branches]
    assert found.text.count("#") >= message.count("#")


def test_stray_syntax_is_quoted() -> None:
    (found,) = through(Copying(change=lambda text: f"}} {text} # {{"), "{n, plural, other {Da}}")
    assert found.text == "{n, plural, other {'}' Da '#' '{'}}"
    assert argument(found.text) is not None


def test_documents_hand_out_messages_whose_branches_can_be_told_apart() -> None:
    whole = "a {n, plural, other {b}} c {m, plural, other {d}}"
    document = open_document(f'{{"a": "{FILES}", "b": "{whole}"}}'.encode(), name="a.json")
    assert [unit.source.text for unit in document.units] == [FILES]
    assert len(document.left) == 1
