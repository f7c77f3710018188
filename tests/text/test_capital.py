"""A text that begins with a capital is translated into one that does."""

import pytest

from knnmt.text.capital import with_capital


@pytest.mark.parametrize(
    ("source", "target", "language", "wanted"),
    [
        ("Datei öffnen", "open file", "de", "Open file"),
        ("Save", "speichern", "en", "Speichern"),
        ("Tage", "days", "de", "days"),  # a noun: it may stand in the middle of a sentence
        ("öffnen", "open", "de", "open"),
        ("Das iPhone lädt", "iPhone is charging", "de", "iPhone is charging"),
        ("Mit apt installieren", "apt install", "de", "apt install"),
        ("Eine Datei", "", "de", ""),
        ("Eine Datei", "ßu", "de", "ßu"),  # it has no capital of one letter
        ("Eine Datei", "3 files", "de", "3 files"),
        ("Eine Datei", "a file", None, "A file"),
    ],
)
def test_a_lost_capital_is_put_back(source: str, target: str, language: str | None, wanted: str) -> None:
    assert with_capital(source, target, language) == wanted
