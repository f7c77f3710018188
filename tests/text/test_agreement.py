"""German articles and adjectives in other genders, in the same case and number."""

import pytest

from knnmt.text.agreement import agreeing
from knnmt.text.glossary_forms import word_forms


@pytest.mark.parametrize(
    ("before", "start", "phrases"),
    [
        ("Öffne den neuen", 6, "den neuen, die neue, das neue"),
        ("Der", 0, "Der, Dem, Des, Die, Das"),
        ("Die große", 0, "Die große, Der große, Das große, Den großen"),
        ("Klicken Sie im unteren", 12, "im unteren, in der unteren"),
        ("Kopiere es in einen anderen kleinen", 11, "in einen anderen kleinen, in eine andere kleine, "
         "in ein anderes kleines"),
        ("Der Name des alten", 9, "des alten, der alten"),
        ("Mit diesem", 4, "diesem, dieser"),
        ("in den ausgewählten", 0, "in den ausgewählten, in die ausgewählte, ins ausgewählte"),
        ("zum", 0, "zum, zur"),
        ("kein", 0, "kein, keine, keinen"),
    ],
)  # fmt: skip
def test_an_article_in_each_gender(before: str, start: int, phrases: str) -> None:
    found, variants = agreeing(before)
    assert (found, set(variants)) == (start, set(phrases.split(", ")))


@pytest.mark.parametrize("before", ["", "Zwei", "Öffne", "Öffne neue", "der, neue", "die 3 neuen", "Kopieren Sie"])
def test_where_no_article_belongs_to_the_noun(before: str) -> None:
    assert agreeing(before) == (len(before), [])


def test_forms_that_are_no_words_are_not_made() -> None:
    assert word_forms("Verzeichnis", "de") == ["Verzeichnis", "Verzeichnisse", "Verzeichnissen", "Verzeichnisses"]
