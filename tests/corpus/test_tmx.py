"""Translation memories: every dialect of TMX is read, in constant memory, and hostile ones are refused."""

import gzip
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt.corpus import Languages, Segment, read
from knnmt.errors import DataError, UsageError

DE_EN = Languages.parse("de-en")
DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'


def variant(language: str, seg: str, attributes: str = "") -> str:
    return f'<tuv xml:lang="{language}" {attributes}><seg>{seg}</seg></tuv>'


def unit(source: str = "eins", target: str = "one", attributes: str = "") -> str:
    return f"<tu {attributes}>{variant('de', source)}{variant('en', target)}</tu>"


def document(*units: str, doctype: str = DOCTYPE, encoding: str = "UTF-8") -> str:
    body = "\n".join(units)
    head = f'<?xml version="1.0" encoding="{encoding}"?>\n{doctype}\n'
    return f'{head}<tmx version="1.4">\n<header srclang="de"/>\n<body>\n{body}\n</body>\n</tmx>\n'


def memory(folder: Path, *units: str, doctype: str = DOCTYPE) -> Path:
    path = folder / "memory.tmx"
    path.write_text(document(*units, doctype=doctype), encoding="utf-8")
    return path


def pairs(path: Path, languages: Languages = DE_EN) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in read(path, languages)]


def test_units_come_with_their_name_and_the_date_of_the_translation(tmp_path: Path) -> None:
    path = memory(
        tmp_path,
        unit(attributes='tuid="a-1" creationdate="20200101T000000Z"'),
        '<tu changedate="20210101T000000Z">'
        + variant("de", "zwei", 'changedate="20230101T000000Z"')
        + variant("en", "two", 'creationdate="20220101T000000Z"')
        + "</tu>",
        unit("drei", "three"),
    )
    assert list(read(path, DE_EN)) == [
        Segment("eins", "one", f"{path}#a-1", "a-1", "20200101T000000Z"),
        Segment("zwei", "two", f"{path}#2", None, "20220101T000000Z"),
        Segment("drei", "three", f"{path}#3", None, None),
    ]


def test_the_direction_asked_for_decides_whatever_the_header_says(tmp_path: Path) -> None:
    assert pairs(memory(tmp_path, unit()), Languages.parse("en-de")) == [("one", "eins")]


@pytest.mark.parametrize("doctype", ["", DOCTYPE, '<!DOCTYPE tmx PUBLIC "-//LISA//TMX//EN" "tmx[14].dtd">'])
def test_an_ordinary_document_type_is_welcome_and_its_file_is_never_fetched(tmp_path: Path, doctype: str) -> None:
    assert pairs(memory(tmp_path, unit(), doctype=doctype)) == [("eins", "one")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_the_encoding_is_the_one_the_file_declares(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(document(unit("schön", "naïve"), encoding=encoding.removesuffix("-sig")), encoding=encoding)
    assert pairs(path) == [("schön", "naïve")]


def test_a_memory_may_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx.gz"
    path.write_bytes(gzip.compress(document(unit()).encode()))
    assert pairs(path) == [("eins", "one")]


def test_old_files_say_lang_and_some_declare_a_namespace(tmp_path: Path) -> None:
    path = tmp_path / "old.tmx"
    old = document(unit(), doctype='<!DOCTYPE tmx SYSTEM "tmx11.dtd">').replace("xml:lang", "lang")
    path.write_text(old.replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" '))
    assert pairs(path) == [("eins", "one")]


@pytest.mark.parametrize(("german", "english"), [("de-DE", "en-US"), ("DE", "EN"), ("DE_de", "en_gb")])
def test_language_tags_match_in_any_spelling(tmp_path: Path, german: str, english: str) -> None:
    path = memory(tmp_path, f"<tu>{variant(english, 'one')}{variant(german, 'eins')}</tu>")
    assert pairs(path) == [("eins", "one")]


def test_of_many_variants_the_exact_tag_wins_then_the_first_and_another_region_never(tmp_path: Path) -> None:
    portuguese = [
        ("fr", "un"),
        ("pt-PT", "Lisboa"),
        ("pt", "geral"),
        ("pt-BR", "Brasil"),
        ("en", "one"),
        ("en", "1"),
    ]
    path = memory(tmp_path, "<tu>" + "".join(variant(*v) for v in portuguese) + "</tu>")
    assert pairs(path, Languages.parse("en-pt-BR")) == [("one", "Brasil")]
    assert pairs(path, Languages.parse("en-pt")) == [("one", "geral")]
    path = memory(tmp_path, "<tu>" + "".join(variant(*v) for v in portuguese if v[0] != "pt-BR") + "</tu>")
    assert pairs(path, Languages.parse("en-pt-BR")) == [("one", "geral")]
    path = memory(tmp_path, f"<tu>{variant('en', 'one')}{variant('pt-PT', 'Lisboa')}</tu>")
    with pytest.raises(UsageError, match=r"pt-BR; choose two of its languages: en, pt-PT"):
        pairs(path, Languages.parse("en-pt-BR"))


def test_units_without_the_pair_are_passed_over_unless_all_are(tmp_path: Path) -> None:
    french = f"<tu>{variant('fr', 'un')}{variant('en', 'one')}</tu>"
    assert pairs(memory(tmp_path, french, unit("zwei", "two"))) == [("zwei", "two")]
    with pytest.raises(UsageError, match=r"none of its 2 units .* de and en; choose two of its languages: en, fr"):
        pairs(memory(tmp_path, french, french))
    assert pairs(memory(tmp_path)) == []


@pytest.mark.parametrize(
    ("seg", "text"),
    [
        ('Das ist <bpt i="1">&lt;b&gt;</bpt>fett<ept i="1">&lt;/b&gt;</ept>.', "Das ist fett."),
        ('<hi type="term">Ein <hi>Wort</hi></hi> hier', "Ein Wort hier"),
        ('vor <it pos="begin">{\\i</it>nach', "vor nach"),
        ("alt <ut>{\\f1</ut>neu", "alt neu"),
        ("Zeile<ph>&lt;br/&gt;</ph>zwei", "Zeile zwei"),
        ("Nummer <ph>%d</ph>.", "Nummer ."),
        ("Wort<ph>&lt;fn&gt;<sub>Eine Fußnote.</sub>&lt;/fn&gt;</ph> weiter", "Wort weiter"),
        ('<hi>a<bpt i="1">x<sub>y</sub></bpt></hi>b', "ab"),
        ("H<sub>2</sub>O", "H2O"),
        ("a<!-- b -->c<?d e?>f", "acf"),
        ("<![CDATA[1 < 2]]> &amp; &#8222;x&#8220;", "1 < 2 & „x“"),
        ("", ""),
    ],
)
def test_words_stay_and_inline_codes_go(tmp_path: Path, seg: str, text: str) -> None:
    assert pairs(memory(tmp_path, unit(seg))) == [(text, "one")]


def test_a_variant_without_a_text_is_an_empty_side(tmp_path: Path) -> None:
    path = memory(tmp_path, f'<tu><prop>x</prop><tuv xml:lang="de"><note>n</note></tuv>{variant("en", "one")}</tu>')
    assert pairs(path) == [("", "one")]


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))


@pytest.mark.parametrize(
    ("subset", "seg"),
    [
        (f'<!ENTITY l0 "lol">{LAUGHS}', "&l11;"),
        (f'<!ENTITY l0 "lol">{LAUGHS}', '<hi type="&l11;">x</hi>'),
        ('<!ENTITY secret SYSTEM "file://{folder}/secret.txt">', "&secret;"),
        ('<!ENTITY % secret SYSTEM "file://{folder}/secret.txt"> %secret;', "x"),
        ('<!ENTITY harmless "x">', "x"),
        ("<!ELEMENT tmx ANY>", "x"),
        ('<!ATTLIST tuv lang CDATA "de">', "x"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_type_with_declarations_is_refused_before_anything_is_read(
    tmp_path: Path, subset: str, seg: str, encoding: str
) -> None:
    (tmp_path / "secret.txt").write_text("TOP SECRET")
    doctype = f'<!DOCTYPE tmx SYSTEM "tmx14.dtd" [{subset.replace("{folder}", str(tmp_path))}]>'
    path = tmp_path / "memory.tmx"
    path.write_text(document(unit(), unit(seg), doctype=doctype, encoding=encoding), encoding=encoding)
    stream = read(path, DE_EN)
    with pytest.raises(DataError, match=r"memory\.tmx.*DOCTYPE has an internal subset.*remove") as caught:
        next(stream)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("doctype", ["", DOCTYPE])
def test_an_entity_that_nobody_declared_is_an_error_and_not_a_hole(tmp_path: Path, doctype: str) -> None:
    with pytest.raises(DataError, match=r"memory\.tmx.*nbsp"):
        pairs(memory(tmp_path, unit("a&nbsp;b"), doctype=doctype))


def test_broken_xml_is_named_by_its_line_after_the_sound_units(tmp_path: Path) -> None:
    path = memory(tmp_path, unit(), "<tu><tuv xml:lang='de'><seg>zwei</tuv></tu>")
    with pytest.raises(DataError, match=r"memory\.tmx:7: invalid XML .*seg.*export") as caught:
        pairs(path)
    assert "\n" not in str(caught.value)


def test_a_memory_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(document(unit(), unit("zwei", "two"))[:-30])
    with pytest.raises(DataError, match=r"memory\.tmx:\d+: invalid XML"):
        pairs(path)


def test_bytes_against_the_declared_encoding_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_bytes(document(unit("schön")).encode("latin-1"))
    with pytest.raises(DataError, match=r"memory\.tmx:6: invalid XML"):
        pairs(path)


@pytest.mark.parametrize("content", ["<html><body/></html>", "<xliff><tu/></xliff>"])
def test_other_xml_is_not_taken_for_a_memory(tmp_path: Path, content: str) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(content)
    with pytest.raises(DataError, match="not <tmx>; export"):
        pairs(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Kept in memory, these 60,000 units would take over 100 MB."""
    words = "wort " * 20
    path = memory(tmp_path, *(unit(f"Satz {i} {words}", f"sentence {i} {words}") for i in range(60_000)))
    program = f"""
import re
from pathlib import Path
from knnmt.corpus import Languages, read

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

stream = read({str(path)!r}, Languages.parse("de-en"))
next(stream)
before = peak()
print(sum(1 for _ in stream), peak() - before)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, growth_kb = map(int, result.stdout.split())
    assert count == 59_999
    assert growth_kb < 20_000


# XML has no place for most control characters, and reads a carriage return as a line feed.
XML_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n"),
    max_size=30,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.tuples(XML_TEXT, XML_TEXT), max_size=6), encoding=st.sampled_from(["utf-8", "utf-16"]))
def test_any_text_comes_back_from_tmx(tmp_path: Path, texts: list[tuple[str, str]], encoding: str) -> None:
    path = tmp_path / "any.tmx"
    content = document(*(unit(escape(source), escape(target)) for source, target in texts), encoding=encoding)
    path.write_bytes(content.encode(encoding))
    assert pairs(path) == texts
