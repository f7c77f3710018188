"""The checks of a translation: what each finds, and what it lets pass."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from knnmt.checks import KINDS, check
from knnmt.checks.reports import as_junit, as_sarif
from knnmt.checks.review import Located, Translated, review
from knnmt.checks.table import CHECKS
from knnmt.documents import open_document
from knnmt.documents.reviewed import reviewed, side_by_side
from knnmt.errors import UsageError
from knnmt.languages import Languages
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Code, Inline
from knnmt.text.terms import Term

LANGUAGES = Languages("de", "en")
GLOSSARY = Glossary([Term("Datei", "file")], LANGUAGES)
BOLD = (Code(0, "<g>", 1), Code(4, "</g>", 0))

# kind, source, a translation with a finding of that kind and no other, a sound one
CASES: list[tuple[str, str | Inline, str | Inline, str | Inline]] = [
    ("untranslated", "Konto schließen", "", "Close account"),
    ("untranslated", "Konto schließen", "Konto schließen", "Close account"),
    ("untranslated", "%s: %d", "", "%s: %d"),
    ("placeholder", "%d Dateien", "files", "%d files"),
    ("placeholder", "Hallo", "Hello {name}", "Hello"),
    ("placeholder", "%s in %d", "%d in %s", "%2$d in %1$s"),
    ("placeholder", "{name} da", "there", "{name} there, {name}"),
    ("placeholder", "{n, plural, one {# Datei} other {# Dateien}}", "{m, plural, one {# file} other {# files}}",
     "{n, plural, one {# file} other {# files}}"),
    ("tag", "<b>Neu</b> hier", "<b>New here", "<b>New</b> here"),
    ("tag", "<b><i>Neu</i></b> hier", "<b><i>New</b></i> here", "<b><i>New</i></b> here"),
    ("tag", "<b>Neu</b> hier", "<b></b>New here", "Here is <b>new</b>"),
    ("tag", '<a href="x" title="Neu">da</a>', '<a href="y" title="Neu">there</a>', '<a href="x" title="New">there</a>'),
    ("tag", Inline("Neu hier", BOLD), Inline("New here", BOLD[:1]), Inline("New here", BOLD)),
    ("escape", "A&nbsp;B", "A B", "A&nbsp;B"),
    ("address", "Siehe https://x.de/", "See https://y.de/", "See https://x.de/"),
    ("code", "Starten mit `run`", "Start it", "Start with `run`"),
    ("number", "Es sind 12 Tage", "There are 21 days", "There are twelve days"),
    ("number", "am 01.02.2024", "on 2/1/2023", "on 2/1/2024"),
    ("number", "um 17 Uhr am 3. Mai", "at 5 pm on May 4", "at 5 pm on May 3"),
    ("accelerator", "&Datei", "File", "&File"),
    ("term", "Die Datei fehlt", "The document is missing", "The file is missing"),
    ("length", "Ja", "Yes, and so much more than anybody ever wanted to know", "Yes, certainly"),
    ("length", "Ein langer Satz, der von allem Möglichen handelt und nicht endet", "Sentence", "A long sentence on it"),
    ("punctuation", "Wirklich?", "Really", "Really?"),
    ("punctuation", "Laden …", "Loading.", "Loading..."),
    ("bracket", "Preis (netto)", "Price (net", "Net price"),
    ("quote", "Die „Datei“", 'The "file', 'The "file"'),
    ("space", " Hallo\n", "Hello\n", " Hello\n"),
    ("space", "Zwei Worte", "Two  words", "Two words"),
    ("space", Inline("Mit x .", (Code(6, "<ph/>", None),)), Inline("With  x.", (Code(8, "<ph/>", None),)),
     Inline("With  x.", (Code(5, "<ph/>", None),))),
    ("space", "Ja, gern", "Yes , gladly", "Yes, gladly"),
    ("repeated", "Das Haus", "The the house", "I know that that house"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "source", "bad", "good"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_what_a_check_finds(kind: str, source: str | Inline, bad: str | Inline, good: str | Inline) -> None:
    assert {found.kind for found in check(source, bad, LANGUAGES, GLOSSARY)} == {kind}
    assert check(source, good, LANGUAGES, GLOSSARY) == []
    assert check(source, bad, LANGUAGES, GLOSSARY, ignore=[kind]) == []


def test_every_check_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(CHECKS)


def test_languages_may_be_unknown() -> None:
    found = ["%s is missing", "34 is missing", "43 is not in the source"]
    assert [each.message for each in check("34 Tage %s", "43 days")] == found


# ------------------------------------------------------------------------------------------------------------ files

PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Save"
msgstr "Speichern"

msgctxt "menu"
msgid "Save"
msgstr "Sichern"

msgid "Save"
msgstr "Speichern"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%s Dateien"

msgid "Close all"
msgstr ""
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def told(found: list[Located]) -> list[str]:
    return [str(each).rpartition("/")[2] for each in found]


def test_a_catalog(file: Callable[[str, str], Path]) -> None:
    document = open_document(file("a.po", PO), languages=Languages("en", "de"))
    found = review(reviewed(document), Languages("en", "de"))
    assert [str(each).replace(str(document.content.name), "a.po") for each in found] == [
        "a.po:8: inconsistent: elsewhere translated as «Speichern» (a.po:4)",
        "a.po:14: placeholder: %d is missing",
        "a.po:14: placeholder: %s is not in the source",
        "a.po:19: untranslated: the translation is empty",
    ]


def test_a_text_and_its_translation_by_lines(file: Callable[[str, str], Path]) -> None:
    source, target = file("a.txt", "Eins\n\nZwei %s\nDrei Tage\n"), file("b.txt", "One\n\nTwo\n\n")
    documents = [open_document(path, "text") for path in (source, target)]
    assert told(review(side_by_side(*documents))) == [
        "b.txt:3: placeholder: %s is missing",
        "b.txt:4: untranslated: the translation is empty",
    ]


def test_messages_by_their_keys(file: Callable[[str, str], Path]) -> None:
    source = file("a.json", '{"a": "Eins {n}", "b": "Zwei Tage", "c": "Drei"}')
    target = file("b.json", '{"c": "Three",\n "a": "One"}')
    assert told(review(side_by_side(open_document(source), open_document(target)))) == [
        "b.json:2: placeholder: {n} is missing",
        "b.json:b: untranslated: the translation is empty",
    ]


def test_documents_that_do_not_fit(file: Callable[[str, str], Path]) -> None:
    source, target = file("a.md", "Eins\n\nZwei\n"), file("b.md", "One\n")
    with pytest.raises(UsageError, match=r"a\.md has 2 texts and .*b\.md 1"):
        list(side_by_side(open_document(source), open_document(target)))


def test_plural_forms_may_translate_one_text_in_several_ways() -> None:
    units = [Translated("a", 1, "", Inline("%d files"), Inline(target), entry=1) for target in ("%d x", "%d y")]
    assert review(units) == []


def test_reports() -> None:
    found = [
        Located("a b.po", 3, "key", "number", "1 < 2 & \x01", "s", "t"),
        Located("a b.po", 0, "key", "tag", "m", "s", "t"),
    ]
    (run,) = json.loads(as_sarif(found, "1.0"))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["number", "tag"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a%20b.po"}, "region": {"startLine": 3}}
    assert "region" not in run["results"][1]["locations"][0]["physicalLocation"]
    suites = ElementTree.fromstring(as_junit(found, ["a b.po", "c.po"], KINDS))
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites] == [("16", "2"), ("16", "0")]
    assert [case.get("name") for case in suites[0] if len(case)] == ["tag", "number"]
