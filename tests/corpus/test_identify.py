"""A corpus whose sides are swapped is refused, one in another language is told, and foreign segments are dropped."""

from pathlib import Path

import pytest

from knnmt.corpus import CleanSettings, Languages, Segment, clean, read_all
from knnmt.errors import UsageError

DE_EN = Languages.parse("de-en")
ENGLISH = [
    "Open file", "Save", "Cannot open", "New window", "Close all", "Delete this message", "Search and replace",
    "Printer settings", "Show hidden files", "Unknown error", "Change password", "Your account",
]  # fmt: skip
GERMAN = [
    "Datei öffnen", "Speichern", "Kann nicht öffnen", "Neues Fenster", "Alle schließen", "Diese Nachricht löschen",
    "Suchen und ersetzen", "Druckereinstellungen", "Versteckte Dateien zeigen", "Unbekannter Fehler",
    "Passwort ändern", "Ihr Konto",
]  # fmt: skip
FRENCH = [
    "Ouvrir le fichier", "Enregistrer", "Impossible d'ouvrir", "Nouvelle fenêtre", "Tout fermer",
    "Supprimer ce message", "Rechercher et remplacer", "Paramètres de l'imprimante", "Afficher les fichiers cachés",
    "Erreur inconnue", "Changer le mot de passe", "Votre compte",
]  # fmt: skip


def table(path: Path, source: list[str], target: list[str]) -> Path:
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(source, target, strict=True)) * 3, encoding="utf-8")
    return path


def test_swapped_columns_of_short_strings_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "x.tsv", ENGLISH, GERMAN)
    with pytest.raises(UsageError, match=r"x\.tsv: the sides are swapped.*use en-de"):
        list(read_all([path], DE_EN))
    assert len(list(read_all([path], Languages.parse("en-de")))) == 36
    assert len(list(read_all([path], DE_EN, identify=False))) == 36


def test_a_corpus_in_another_language_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(list(read_all([table(tmp_path / "x.tsv", GERMAN, ENGLISH)], DE_EN))) == 36
    assert caplog.messages == []
    path = table(tmp_path / "y.tsv", FRENCH, ENGLISH)
    assert len(list(read_all([path], DE_EN))) == 36
    assert caplog.messages == [f"{path}: the source side is probably fr, not de"]


@pytest.mark.parametrize(
    "foreign",
    [
        "Le fichier n'a pas pu être ouvert par le programme.",
        "El archivo no se pudo abrir en este equipo",
        "Файл не может быть открыт программой сегодня",
    ],
)
def test_a_sentence_in_a_third_language_is_dropped_and_a_short_string_is_not(foreign: str) -> None:
    german, english = "Die Datei konnte vom Programm nicht geöffnet werden", "The program could not open the file"
    short = " ".join(foreign.split()[:3])
    pairs = [(german, english), (foreign, english), (german, foreign), (short, english), (german, short)]
    segments = [Segment(*pair, origin=str(number)) for number, pair in enumerate(pairs)]
    settings = CleanSettings(max_ratio=None)
    assert [segment.origin for segment in clean(segments, DE_EN, settings)] == ["0", "3", "4"]
