"""Files come out as they went in, to the byte, but for what was translated."""

import codecs
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.documents import State, Unit, open_document
from knnmt.documents.formats import FORMATS, format_of
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages
from knnmt.text.inline import Inline

from .examples import EN_RU, EXAMPLES, opened, shout, translate
from .office import OFFICE

XML = ("app.xlf", "app2.xliff", "memory.tmx", "app.ts", "strings.xml")
ONE_LANGUAGE = (
    "page.html", "page.md", "app.json", "app_en.arb", "messages.json", "en.yml", "app.properties", "app.strings",
    "film.srt", "film.vtt", "text.txt", "strings.xml",
)  # fmt: skip
FLOWING = ("page.html", "page.md", "film.srt", "film.vtt", "text.txt", "strings.xml")  # white space is not significant


def test_there_is_an_example_of_every_format() -> None:
    of_office = {"docx", "pptx", "xlsx", "odf"}
    assert {opened(name).format.name for name in EXAMPLES} | of_office == {each.name for each in FORMATS}
    assert {open_document(data, name=name).format.name for name, data in OFFICE.items()} == of_office


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_translations_a_file_is_the_same(name: str) -> None:
    document = opened(name)
    assert list(document.units)
    assert document.to_bytes() == EXAMPLES[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_line_ends_stay(name: str) -> None:
    windows = EXAMPLES[name].replace(b"\n", b"\r\n")
    document = opened(name, windows)
    assert document.to_bytes() == windows
    assert [unit.line for unit in document.units] == [unit.line for unit in opened(name).units]
    assert translate(document).count(b"\n") == translate(document).count(b"\r\n")
    assert translate(document).replace(b"\r\n", b"\n") == translate(opened(name))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")],
)
def test_encodings_by_a_byte_order_mark(name: str, mark: bytes, encoding: str) -> None:
    text = EXAMPLES[name].decode()
    if name in XML:
        text = text.replace(' encoding="UTF-8"', "").replace(' encoding="utf-8"', "")
    data = mark + text.encode(encoding)
    assert opened(name, data).to_bytes() == data
    translated = translate(opened(name, data))
    assert translated[len(mark) :].decode(encoding) == translate(opened(name, text.encode())).decode()
    assert translated.startswith(mark)


@pytest.mark.parametrize("name", XML)
def test_xml_in_its_declared_encoding_spells_what_that_lacks(name: str) -> None:
    text = EXAMPLES[name].decode().replace('<?xml version="1.0"?>', '<?xml version="1.0" encoding="utf-8"?>')
    text = "".join(letter if letter.isascii() else f"&#{ord(letter)};" for letter in text)
    data = (
        text.replace('encoding="UTF-8"', 'encoding="ISO-8859-1"').replace('"utf-8"', '"iso-8859-1"').encode("latin-1")
    )
    document = opened(name, data)
    assert document.content.encoding == "iso-8859-1"
    unit = next(iter(document.units))
    unit.set(Inline.plain("Grüße Привет"))
    assert b"Gr\xfc\xdfe &#1055;&#1088;" in document.to_bytes()


def test_a_catalog_in_latin_1_says_what_it_cannot_write() -> None:
    data = EXAMPLES["app.po"].replace(b"charset=UTF-8", b"charset=ISO-8859-1").replace("ä".encode(), b"\xe4")
    document = opened("app.po", data)
    assert document.to_bytes() == data
    assert b'msgstr "\xc4\xdf"' in _set(document, "Äß")
    with pytest.raises(DataError, match=r"app\.po: iso-8859-1 cannot encode 'П'.*UTF-8"):
        _set(document, "Привет")


def _set(document, text: str) -> bytes:  # type: ignore[no-untyped-def]
    next(iter(document.units)).set(Inline.plain(text))
    return bytes(document.to_bytes())


def test_properties_in_latin_1() -> None:
    document = opened("app.properties", "a=Größe\n".encode("latin-1"))
    assert document.to_bytes() == b"a=Gr\xf6\xdfe\n"
    assert _set(document, "Größe – П") == b"a=Gr\xf6\xdfe \\u2013 \\u041f\n"


@pytest.mark.parametrize("name", EXAMPLES)
def test_translating_twice_is_translating_once(name: str) -> None:
    once = translate(opened(name))
    again = open_document(once, languages=EN_RU if name not in ONE_LANGUAGE else None, name=name)
    for unit in again.units:
        unit.set(shout(unit.source), state=State.FUZZY, note="score -0.5")
    if name == "page.md":  # a reference by its text alone got a label
        return
    assert again.to_bytes() == once


TEXTS = st.text(
    st.one_of(
        st.sampled_from(string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", "")),
        st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co", "Zl", "Zp")),
    ),
    max_size=30,
)


def _read_back(name: str, text: str, number: int) -> str:
    """Give a unit this translation, and read what the file has then."""
    document = opened(name)
    units = list(document.units)
    number %= len(units) - 2 * (name == "strings.xml")  # forms that the source does not have
    codes = tuple(code._replace(at=0) for code in units[number].source.codes)
    units[number].set(Inline(text, codes))
    again = open_document(document.to_bytes(), languages=None if name in ONE_LANGUAGE else EN_RU, name=name)
    after = list(again.units)
    found = after[number].source if name in ONE_LANGUAGE else after[number].target
    assert found is not None
    # gettext wants line feeds where the source has them, and so do blocks of YAML
    return found.text.rstrip("\n") if name in ("app.po", "en.yml") else found.text


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("page.md", "film.srt")])
@settings(max_examples=40, deadline=None)
@given(text=TEXTS, number=st.integers(0, 50))
def test_any_translation_is_read_back(name: str, text: str, number: int) -> None:
    text = f"a{text}z"
    if name == "app.properties":
        text = text.replace("'", "")  # doubled where the text has arguments
    if name == "page.html":
        text += "."  # before a <br>, that ends a sentence
    if name == "film.vtt":
        text = re.sub(r"\W", " ", text)  # a sentence that ends with a line is a unit of its own
    if name in FLOWING or name == "table.tsv":
        text = " ".join(text.split())
    if name in ("text.txt", "table.tsv") or "://" in text or "{" in text:
        text = text.replace("{", "(").replace(":", ";")
    assert _read_back(name, text, number) == text


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from("a Das *x* **y _z_ snake_case [q] <b> `c` 1. - # | \\ ~~ > + = end".split())))
def test_words_in_markdown_stay_text(words: list[str]) -> None:
    text = " ".join(["Wort", *words, "z"])
    assert _read_back("page.md", text, 0).replace("\\", "") == text.replace("\\", "")
    assert len(list(open_document(_translated_first("page.md", text), name="page.md").units)) == 11


def _translated_first(name: str, text: str) -> bytes:
    document = opened(name)
    unit = next(iter(document.units))
    unit.set(Inline(text, unit.source.codes))
    return document.to_bytes()


def test_formats_are_told_by_name_and_content() -> None:
    with pytest.raises(UsageError, match=r"app\.ts: unknown format"):
        open_document(b"export const x: number = 1;\n", name="app.ts")
    with pytest.raises(UsageError, match=r"pom\.xml: unknown format"):
        open_document(b"<project/>", name="pom.xml")
    assert [format_of("-", b"", name).name for name in ("md", "yml", "xlf")] == ["markdown", "yaml", "xliff"]
    with pytest.raises(UsageError, match=r"no format 'word'.*po, xliff"):
        open_document(b"x", "word")
    assert open_document(b"a = 1", "properties", languages=Languages("de", "en")).format.name == "properties"


def test_a_unit_says_what_it_is() -> None:
    unit = Unit(Inline.plain("Hello"), line=3, key="menu")
    assert repr(unit) == "Unit(menu, 'Hello', untranslated)"
