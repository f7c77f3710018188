"""gettext catalogs: finished messages only, the right way round, in the language that was asked for."""

import gzip
from pathlib import Path

import polib
import pytest

from knnmt.corpus import Languages, Segment, read
from knnmt.errors import DataError, UsageError

DE_EN = Languages.parse("de-en")
EN_DE = Languages.parse("en-de")
HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: {language}\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"
"""
MESSAGES = """
#: app.py:3
msgid "Save"
msgstr "Speichern"

msgctxt "month"
msgid "May"
msgstr "Mai"

#, fuzzy
msgid "Open"
msgstr "Offen"

msgid "Untranslated"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "%d half"
msgid_plural "%d halves"
msgstr[0] "%d Hälfte"
msgstr[1] ""

msgid ""
"Two\\n"
"lines"
msgstr ""
"Zwei\\n"
"Zeilen \\"hier\\""

#~ msgid "Old"
#~ msgstr "Alt"
"""
FINISHED = [
    ("Save", "Speichern"),
    ("May", "Mai"),
    ("%d file", "%d Datei"),
    ("%d files", "%d Dateien"),
    ("Two\nlines", 'Zwei\nZeilen "hier"'),
]


def catalog(path: Path, content: str = MESSAGES, language: str = "de", encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER.format(language=language) + content, encoding=encoding)
    return path


def pairs(path: Path, languages: Languages = EN_DE, msgid_language: str = "en") -> list[tuple[str, str]]:
    return [(s.source, s.target) for s in read(path, languages, msgid_language=msgid_language)]


def test_only_finished_messages_are_read_each_with_its_line(tmp_path: Path) -> None:
    path = catalog(tmp_path / "app.po")
    segments = list(read(path, EN_DE))
    assert [(s.source, s.target) for s in segments] == FINISHED
    assert segments[0] == Segment("Save", "Speichern", f"{path}:7")


def test_the_messages_are_the_target_when_translating_into_english(tmp_path: Path) -> None:
    assert pairs(catalog(tmp_path / "app.po"), DE_EN) == [(german, english) for english, german in FINISHED]


def test_a_compiled_catalog_reads_like_its_source(tmp_path: Path) -> None:
    polib.pofile(str(catalog(tmp_path / "app.po"))).save_as_mofile(str(tmp_path / "app.mo"))
    assert sorted(pairs(tmp_path / "app.mo")) == sorted(FINISHED)
    origins = {segment.origin for segment in read(tmp_path / "app.mo", EN_DE)}
    assert origins == {f"{tmp_path}/app.mo#{number}" for number in (1, 2, 3, 4)}


@pytest.mark.parametrize("suffix", [".po", ".mo"])
def test_a_gzipped_catalog_reads_the_same(tmp_path: Path, suffix: str) -> None:
    catalog(tmp_path / "app.po", '\nmsgid "a\u2028b"\nmsgstr "c\x0cd\x85e"\n')
    polib.pofile(str(tmp_path / "app.po")).save_as_mofile(str(tmp_path / "app.mo"))
    packed = tmp_path / f"app{suffix}.gz"
    packed.write_bytes(gzip.compress((tmp_path / f"app{suffix}").read_bytes()))
    assert pairs(packed) == pairs(tmp_path / f"app{suffix}") == [("a\u2028b", "c\x0cd\x85e")]


def test_the_charset_of_the_header_is_honoured_and_a_byte_order_mark_accepted(tmp_path: Path) -> None:
    latin = tmp_path / "latin.po"
    latin.write_text(
        HEADER.format(language="de").replace("UTF-8", "ISO-8859-1") + '\nmsgid "nice"\nmsgstr "schön"\n',
        encoding="iso-8859-1",
    )
    assert pairs(latin) == [("nice", "schön")]
    assert pairs(catalog(tmp_path / "bom.po", encoding="utf-8-sig")) == FINISHED


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("app.po", "fr"),
        ("app.po", "fr_CA.UTF-8"),
        ("locale/fr/LC_MESSAGES/app.po", ""),
        ("locale/pt_BR/LC_MESSAGES/app.po", "Brazilian Portuguese"),
        ("fr.po", ""),
        ("pt_BR.po", ""),
        ("locale/de/LC_MESSAGES/app.po", "fr"),
    ],
)
def test_a_catalog_of_another_language_is_refused_by_header_place_or_name(
    tmp_path: Path, name: str, header: str
) -> None:
    with pytest.raises(UsageError, match=r"the catalog is '(fr|fr-CA|pt-BR)', but en-de needs 'de'; leave"):
        pairs(catalog(tmp_path / name, language=header))


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("app.po", "de_AT"),
        ("app.po", ""),
        ("app.po", "German"),
        ("django.po", ""),
        ("locale/de/LC_MESSAGES/app.po", ""),
        ("locale/fr/LC_MESSAGES/app.po", "de"),
        ("de_DE.po", ""),
    ],
)
def test_a_catalog_is_read_where_nothing_says_that_it_is_of_another_language(
    tmp_path: Path, name: str, header: str
) -> None:
    assert pairs(catalog(tmp_path / name, language=header)) == FINISHED


def test_a_pair_without_the_language_of_the_messages_is_refused_until_that_is_told(tmp_path: Path) -> None:
    path = catalog(tmp_path / "app.po")
    with pytest.raises(UsageError, match=r"assumed to be 'en'.*set msgid_language"):
        pairs(path, Languages.parse("fr-de"))
    assert pairs(path, Languages.parse("fr-de"), msgid_language="fr") == FINISHED


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        (["%d Dateien"], [("%d files", "%d Dateien")]),
        (["%d Datei", "%d Dateien"], [("%d file", "%d Datei"), ("%d files", "%d Dateien")]),
        (["%d soubor", "%d soubory", "%d souborů"], [("%d file", "%d soubor")]),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_plural_forms_pair_only_where_they_surely_mean_the_same(
    tmp_path: Path, forms: list[str], expected: list[tuple[str, str]], declared: bool
) -> None:
    lines = [f'msgstr[{number}] "{form}"' for number, form in enumerate(forms)]
    content = "\n".join(['\nmsgid "%d file"', 'msgid_plural "%d files"', *lines, ""])
    path = catalog(tmp_path / "app.po", content)
    header = path.read_text()
    path.write_text(header.replace("nplurals=2", f"nplurals={len(forms)}" if declared else "none"))
    assert pairs(path) == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('\nmsgid "a"\nmsgstr "b" c"\n', r"app\.po:8: corrupt catalog \(unescaped double quote"),
        ("\nno catalog at all\n", r"app\.po:7: corrupt catalog"),
    ],
)
def test_a_broken_catalog_is_named_by_its_line(tmp_path: Path, content: str, place: str) -> None:
    with pytest.raises(DataError, match=place + ".*msgfmt"):
        pairs(catalog(tmp_path / "app.po", content))


def test_bytes_against_the_charset_are_an_error_with_its_remedy(tmp_path: Path) -> None:
    path = catalog(tmp_path / "app.po")
    path.write_bytes(path.read_bytes() + '\nmsgid "nice"\nmsgstr "schön"\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"app\.po: .*is not valid utf-8; correct the charset"):
        pairs(path)


@pytest.mark.parametrize(
    "content", [b"no catalog", b"\xde\x12\x04\x95\0\0", b"\xde\x12\x04\x95" + b"\0" * 8 + b"\xff" * 40]
)
def test_a_file_that_is_no_compiled_catalog_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "app.mo"
    path.write_bytes(content.replace(b"\0" * 8, b"\0\0\0\0\x09\0\0\0"))
    with pytest.raises(DataError, match=r"app\.mo: corrupt catalog"):
        pairs(path)
