"""Glossaries: what a file says, where its terms are found, and what a translation makes of them."""

from pathlib import Path

import pytest

from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages
from knnmt.text.glossary import Glossary
from knnmt.text.terms import Term, TermUse

TBX_2 = """<?xml version="1.0"?>
<martif type="TBX" xml:lang="en"><text><body>
 <termEntry id="1">
  <langSet xml:lang="de"><tig><term>Verzeichnis</term><termNote type="partOfSpeech">noun</termNote></tig></langSet>
  <langSet xml:lang="en">
   <tig><term>folder</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
   <tig><term>dir</term></tig>
   <tig><term>directory</term><termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig>
  </langSet>
 </termEntry>
</body></text></martif>
"""
TBX_3 = """<tbx type="TBX-Basic" style="dct" xml:lang="de" xmlns="urn:iso:std:iso:30042:ed-2"
  xmlns:min="http://www.tbxinfo.net/ns/min"><text><body>
 <conceptEntry id="1">
  <langSec xml:lang="de"><termSec><term>speichern</term><min:partOfSpeech>verb</min:partOfSpeech></termSec></langSec>
  <langSec xml:lang="en-GB"><termSec><term>save</term></termSec></langSec>
 </conceptEntry>
 <conceptEntry id="2"><langSec xml:lang="de"><termSec><term>Sicht</term></termSec></langSec></conceptEntry>
</body></text></tbx>
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def names(glossary: Glossary, text: str) -> list[str]:
    return [text[each.start : each.end] for each in glossary.found(text) if not each.protected]


def german(*pairs: tuple[str, str], **more: object) -> Glossary:
    return Glossary([Term(*pair, **more) for pair in pairs], "de-en")  # type: ignore[arg-type]


class TestReading:
    def test_two_columns_need_no_header(self, tmp_path: Path) -> None:
        path = written(tmp_path, "g.tsv", "# terms\nDatei\tfile\n\nVerzeichnis\tdirectory|dir\n")
        assert Glossary.read(path).terms == (
            Term("Datei", "file", line=2),
            Term("Verzeichnis", "directory", ("dir",), line=4),
        )

    def test_a_header_names_the_columns(self, tmp_path: Path) -> None:
        path = written(
            tmp_path, "g.csv", "target;source;POS;case;forbidden;note\nApple;Apple;noun;yes;apple|pomme;a company\n"
        )
        assert Glossary.read(path).terms == (
            Term("Apple", "Apple", case=True, pos="noun", forbidden=("apple", "pomme"), line=2),
        )

    def test_languages_as_header(self, tmp_path: Path) -> None:
        path = written(tmp_path, "g.csv", 'en,de,note\n"file, open",Datei,\n')
        glossary = Glossary.read(path, "de-en")
        assert glossary.terms == (Term("Datei", "file, open", line=2),)
        assert Glossary.read(path).languages == Languages("en", "de")

    def test_tbx_2_has_preferred_and_deprecated_terms(self, tmp_path: Path) -> None:
        glossary = Glossary.read(written(tmp_path, "g.tbx", TBX_2), "de-en")
        assert glossary.terms == (Term("Verzeichnis", "directory", ("dir",), False, "noun", ("folder",), 3),)

    def test_tbx_3(self, tmp_path: Path) -> None:
        faults: list[DataError] = []
        glossary = Glossary.read(written(tmp_path, "g.xml", TBX_3), "de-en", bad=faults.append)
        assert glossary.terms == (Term("speichern", "save", pos="verb", line=3),)
        assert "g.xml:7: the concept has no term in en" in str(faults[0])

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("Datei\t", ":2: the target term is empty"),
            (" \tfile", ":2: the source term is empty"),
            ("Datei\tfile\tx\ty", ":2: 4 columns, but 2 expected"),
        ],
    )
    def test_a_wrong_line_is_named(self, tmp_path: Path, line: str, told: str) -> None:
        path = written(tmp_path, "g.tsv", f"Ordner\tfolder\n{line}\n")
        with pytest.raises(DataError, match=told):
            Glossary.read(path)
        faults: list[DataError] = []
        assert len(Glossary.read(path, bad=faults.append)) == 1
        assert told in str(faults[0])

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="TSV, CSV or TBX"):
            Glossary.read(written(tmp_path, "g.json", "[]"))
        with pytest.raises(UsageError, match="no such file"):
            Glossary.read(tmp_path / "g.tsv")
        with pytest.raises(UsageError, match="not fr-en"):
            Glossary.read(written(tmp_path, "g.tsv", "de\ten\nDatei\tfile\n"), "fr-en")

    def test_a_glossary_of_other_languages_is_refused(self) -> None:
        assert Glossary([], "de-en").between(Languages("de-AT", "en")).languages == Languages("de", "en")
        with pytest.raises(UsageError, match="the glossary is de-en, but the translation is en-de"):
            Glossary([], "de-en").between(Languages("en", "de"))


class TestFinding:
    @pytest.mark.parametrize(
        ("term", "text", "found"),
        [
            ("Datei", "Dateien und eine Datei.", ["Dateien", "Datei"]),
            ("Datei", "Dateiname Systemdatei Datei-Manager", []),
            ("Haus", "Häuser, Hauses, Häusern", ["Häuser", "Hauses", "Häusern"]),
            ("Druck", "Drucker druck Drucks", ["Drucks"]),
            ("Benutzer", "Benutzen Sie den Benutzern", ["Benutzern"]),
            ("Ergebnis", "Ergebnisse", ["Ergebnisse"]),
            ("Konto", "Konten Kontos", ["Konten", "Kontos"]),
            ("Suche", "Ich suche die Suche", ["Suche"]),
            ("virtuelle Maschine", "den virtuellen Maschinen", ["virtuellen Maschinen"]),
            ("speichern", "Speichern Sie. Er speichert das Speichern", ["Speichern", "speichert"]),
            ("C++", "in C++ und C", ["C++"]),
            ("*verzeichnis", "Stammverzeichnisse Verzeichnis Verzeichnisname", ["Stammverzeichnisse", "Verzeichnis"]),
            ("Datei*", "Dateiname Systemdatei", ["Dateiname"]),
            ("Datei", "DATEI ÖFFNEN", ["DATEI"]),
        ],
    )  # fmt: skip
    def test_in_german_inflection_counts_and_compounds_do_not(self, term: str, text: str, found: list[str]) -> None:
        assert names(german((term, "x")), text) == found

    @pytest.mark.parametrize(
        ("term", "matches", "others"),
        [
            ("Datum", "Datum Datums", "Daten Data Metadaten Datei"),
            ("Enddatum", "Enddatum Enddatums", "Enddaten"),
            ("*datum", "Enddatum Datum Ablaufdatums", "Benutzerdaten Daten Metadaten"),
            ("Datei", "Datei Dateien", "Dateiname Daten Datum"),
            ("Modus", "Modus Modi", "Moden Mode"),
            ("Medium", "Medium Medien Mediums", "Medizin"),
            ("Index", "Index Indizes Indexes", "Indien"),
            ("Fall", "Fall Falls Fälle Fällen", "Falle Fallen"),
            ("Not", "Not Nöte", "Note Noten"),
            ("Rat", "Rat Rats Räte", "Rate Raten"),
            ("Ordner", "Ordner Ordners Ordnern", "Ordnung ordnen"),
            ("Option", "Option Optionen", "Optional optionen"),
            ("Wert", "Wert Werte Werten Wertes", "Wertung werten"),
            ("Bild", "Bild Bilder Bildern Bildes", "Bildung"),
            ("Name", "Name Namen Namens", "Nahme"),
            ("Passwort", "Passwort Passwörter Passwörtern", "Passworteingabe"),
            ("Ausdruck", "Ausdruck Ausdrücke Ausdrucks", "Ausdrucker"),
            ("sicher", "sicher sichere sicheren", "sich sicht sichern"),
            ("weiter", "weiter weitere weiteren", "weit weite"),
            ("offen", "offen offene offenes", "off Offset"),
            ("leer", "leer leere leeren", "le"),
            ("leise", "leise leisen leiser", "Leiste"),
            ("rein", "rein reine", "reist reit"),
            ("öffnen", "öffnen öffnet geöffnet", "offen Öffnung"),
            ("testen", "testen teste testet getestet", "Tester"),
        ],
    )
    def test_german_words_that_match_and_that_do_not(self, term: str, matches: str, others: str) -> None:
        glossary = german((term, "x"))
        text = " ".join(f"so {word}" for word in (*matches.split(), *others.split()))
        assert names(glossary, text) == matches.split()

    @pytest.mark.parametrize(
        ("term", "matches", "others"),
        [
            ("file", "file files Files file's", "filed filing profile"),
            ("query", "query queries", "queried queryset"),
            ("box", "box boxes", "boxed"),
            ("index", "index indices indexes", "indexed"),
            ("datum", "datum datums", "data date"),
            ("new", "new", "news newer"),
            ("mean", "mean", "means meaning"),
            ("custom", "custom", "customs customer"),
            ("child", "child children", "childish"),
            ("person", "person people", "personal"),
            ("matrix", "matrix matrices", "matter"),
        ],
    )
    def test_english_words_that_match_and_that_do_not(self, term: str, matches: str, others: str) -> None:
        glossary = Glossary([Term(term, "x")], "en-de")
        assert names(glossary, f"{matches} {others}") == matches.split()

    def test_a_german_imperative_is_not_a_noun(self) -> None:
        glossary = german(("Klick", "click"), ("Suche", "search"), ("Filter", "filter"), ("Wert", "value"))
        assert names(glossary, "Klicken Sie hier. Suchen Sie: «Filtern Sie». Werten Sie es aus.") == []
        assert names(glossary, "Mit Klicken und Suchen, Filtern, Werten.") == ["Klicken", "Suchen", "Filtern", "Werten"]
        assert names(german(("speichern", "save")), "Speichern Sie es.") == ["Speichern"]

    def test_a_plural_that_is_not_found_still_counts_as_a_use(self) -> None:
        """The search may say «Daten» where the source says «dates»."""
        assert Glossary([Term("date", "Datum")], "en-de").check("Sort by dates", "Nach Daten sortieren") == []

    def test_adjectives_of_a_noun_are_inflected(self) -> None:
        for pos in ("", "noun"):
            glossary = german(("virtuelle Maschine", "VM"), pos=pos)
            text = "virtueller Maschine, virtuellem Maschinen, virtuell Maschine"
            assert names(glossary, text) == ["virtueller Maschine", "virtuellem Maschinen", "virtuell Maschine"]

    def test_in_english(self) -> None:
        glossary = Glossary([Term("file", "Datei"), Term("log in", "anmelden", pos="verb")], "en-de")
        text = "Files, a file's name, filename; she logged in"
        assert names(glossary, text) == ["Files", "file's"]

    def test_case_sensitive_terms(self) -> None:
        glossary = Glossary([Term("SIE", "SIE", case=True)], "de-en")
        assert names(glossary, "sie Sie SIE") == ["SIE"]

    def test_the_longest_term_wins(self) -> None:
        glossary = german(("Maschine", "machine"), ("virtuelle Maschine", "VM"))
        found = glossary.found("Die virtuelle Maschine und die Maschine")
        assert [each.term.target for each in found] == ["VM", "machine"]

    def test_protected_spans_are_told(self) -> None:
        (found,) = german(("Datei", "file")).found("Klick auf {Datei}")
        assert found.protected

    def test_unknown_languages_find_what_is_written(self) -> None:
        glossary = Glossary([Term("Datei", "file")])
        assert names(glossary, "datei Dateien") == ["datei"]


class TestChecking:
    def test_terms_that_are_not_used_and_forbidden_words(self) -> None:
        glossary = german(("Verzeichnis", "directory"), forbidden=("folder",))
        assert glossary.check("Verzeichnisse", "Directories") == []
        assert glossary.check("Das Verzeichnis", "The folders") == [
            "«directory» is not used for «Verzeichnis»",
            "«folders» is forbidden for «Verzeichnis»",
        ]

    def test_a_forbidden_word_that_another_term_wants_is_allowed(self) -> None:
        glossary = Glossary(
            [Term("Verzeichnis", "directory", forbidden=("folder",)), Term("Ordner", "folder")], "de-en"
        )
        assert glossary.check("Verzeichnis und Ordner", "directory and folder") == []

    def test_twice_means_twice(self) -> None:
        glossary = german(("Datei", "file"))
        assert glossary.check("Datei zu Datei", "file to file") == []
        assert glossary.check("Datei zu Datei", "file to it") != []

    def test_a_longer_term_is_no_use_of_a_shorter_one(self) -> None:
        glossary = german(("Datei", "file"), ("Dateisystem", "file system"))
        assert glossary.check("Datei im Dateisystem", "It is in the file system") == ["«file» is not used for «Datei»"]

    def test_a_german_compound_uses_its_parts(self) -> None:
        glossary = Glossary([Term("file", "Datei")], "en-de")
        assert glossary.check("the file manager", "der Dateimanager") == []
        assert glossary.check("the file manager", "der Manager") != []

    def test_report(self) -> None:
        glossary = german(("Datei", "file"), ("Ordner", "folder"))
        assert glossary.report("Datei, {Datei} und Ordner", "File and it", "no place") == (
            TermUse("Datei", "file", True),
            TermUse("Datei", "file", False, "it is inside a protected span"),
            TermUse("Ordner", "folder", False, "no place"),
        )


def test_problems_of_a_glossary() -> None:
    glossary = Glossary(
        [
            Term("Datei", "file", line=1),
            Term("datei", "document", line=2),
            Term("Dateien", "files", line=3),
            Term("Ordner", "folder", forbidden=("Folder",), line=4),
            Term("Dateisystem", "file system", line=5),
        ],
        "de-en",
    )
    assert glossary.problems() == [
        (2, "«datei» is a duplicate of line 1, which has «file»"),
        (3, "«Dateien» is never used: «Datei» of line 1 matches the same words and comes first"),
        (4, "«folder» is both the target and a forbidden word of «Ordner»"),
    ]
