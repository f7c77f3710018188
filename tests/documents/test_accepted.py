"""What is written is accepted by the libraries of each format, and marked in its own way."""

import csv
import html.parser
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polib
import pytest
import yaml
from lxml import etree
from markdown_it import MarkdownIt

from knnmt.documents import State, open_document
from knnmt.documents.plurals import plurals_of
from knnmt.languages import Languages
from knnmt.text.inline import Inline

from .examples import EN_RU, EXAMPLES, opened, shout, translate

XLIFF = {"x": "urn:oasis:names:tc:xliff:document:1.2"}
XLIFF2 = {"x": "urn:oasis:names:tc:xliff:document:2.0"}


def tree(name: str, **kwargs: Any) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    return etree.fromstring(translate(opened(name), **kwargs), parser)


# ------------------------------------------------------------------------------------------------------------ gettext


def test_polib_reads_every_translation(tmp_path: Path) -> None:
    path = tmp_path / "x.po"
    path.write_bytes(translate(opened("app.po")))
    before, after = polib.pofile(EXAMPLES["app.po"].decode()), polib.pofile(str(path))
    assert [(each.msgctxt, each.msgid) for each in after] == [(each.msgctxt, each.msgid) for each in before]
    by_id = {each.msgid: each for each in after if not each.obsolete}
    assert by_id["Two lines\nand the second\n"].msgstr == "TWO LINES\nAND THE SECOND\n"
    assert by_id['Open "file"\tnow\\'].msgstr == 'OPEN "FILE"\tNOW\\'
    assert by_id["One file"].msgstr_plural == {0: "%D FILES", 1: "%D FILES", 2: "%D FILES"}
    assert all(each.fuzzy for each in by_id.values())
    assert by_id["Hello %s"].flags == ["fuzzy", "c-format"]
    assert by_id["One file"].previous_msgid is None
    assert after.metadata["Language"] == "ru"
    assert after.metadata["Plural-Forms"].startswith("nplurals=3;")
    assert [each.msgstr for each in after.obsolete_entries()] == ["Weg", "Ende"]
    wrapped = path.read_text("utf-8")
    assert 'msgstr ""\n"A LONG TEXT THAT WAS' in wrapped


def test_an_exact_match_needs_no_review() -> None:
    written = translate(opened("app.po"), state=State.TRANSLATED).decode()
    assert written.count("fuzzy") == 1  # that of the obsolete message
    assert "#| " not in written
    assert "#, c-format\nmsgid" in written


def test_only_what_changes_is_written() -> None:
    data = EXAMPLES["app.po"].replace(b"Language: ", b"Language: ru")
    document = opened("app.po", data.replace(b"8bit\\n", b'8bit\\n"\n"Plural-Forms: nplurals=2; plural=n>1;\\n'))
    unit = next(unit for unit in document.units if unit.source.text == "Done")
    unit.set(Inline.plain("Готово"))
    assert document.to_bytes() == document.content.text.replace("Fertig", "Готово").encode()


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
@pytest.mark.parametrize("target", ["ru", "ja", "ar", "lv", "pt-BR", "de"])
def test_msgfmt_accepts_the_plural_forms_of_the_target_language(target: str, tmp_path: Path) -> None:
    header = b'msgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n'
    data = header + b'"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\nmsgid "%d x"\nmsgid_plural "%d y\\n"\n'
    data = data.replace(b'"%d x"', b'"%d x\\n"') + b'msgstr[0] ""\nmsgstr[1] ""\n'
    document = open_document(data, languages=Languages("en", target), name="x.pot")
    for unit in document.units:
        unit.set(Inline.plain("ä %d"))
    path = tmp_path / "x.po"
    path.write_bytes(document.to_bytes())
    done = subprocess.run(["msgfmt", "-c", "-v", path, "-o", "/dev/null"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 translated message" in done.stderr
    assert path.read_text("utf-8").count("msgstr[") == plurals_of(target).count


def test_a_form_that_several_numbers_share_has_the_number(tmp_path: Path) -> None:
    header = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    data = header + b'#, c-format\nmsgid "a day"\nmsgid_plural "%d days"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
    data += b'#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    russian, german = (open_document(data, languages=Languages("en", each), name="x.po") for each in ("ru", "de"))
    assert [unit.source.text for unit in russian.units] == ["%d days"] * 3 + ["%d file", "%d files", "%d files"]
    assert [unit.source.text for unit in german.units] == ["a day", "%d days", "%d file", "%d files"]
    slovene, french = (open_document(data, languages=Languages("en", each), name="x.po") for each in ("sl", "fr"))
    assert "a day" not in {unit.source.text for unit in slovene.units}  # 101
    assert "a day" in {unit.source.text for unit in french.units}  # 0 and 1
    for unit in russian.units:
        unit.set(unit.source)
    path = tmp_path / "x.po"
    path.write_bytes(russian.to_bytes())
    if shutil.which("msgfmt") is not None:
        subprocess.run(["msgfmt", "-c", path, "-o", "/dev/null"], check=True, capture_output=True)


def test_a_template_without_a_header_and_one_with_other_forms() -> None:
    data = b'msgid "a %d"\nmsgid_plural "b %d"\nmsgstr[0] "x"\nmsgstr[1] "y"\nmsgstr[2] "z"\n'
    japanese = open_document(data, languages=Languages("en", "ja"), name="x.po")
    assert [unit.source.text for unit in japanese.units] == ["b %d"]
    assert translate(japanese).decode() == '#, fuzzy\nmsgid "a %d"\nmsgid_plural "b %d"\nmsgstr[0] "B %D"\n'


# ---------------------------------------------------------------------------------------------------------------- XML


def test_xliff_12_states_notes_and_codes() -> None:
    root = tree("app.xlf")
    units = {unit.get("id"): unit for unit in root.iterfind(".//x:trans-unit", XLIFF)}
    target = units["1"].find("x:target", XLIFF)
    assert target.get("state") == "needs-review-translation"
    assert "".join(target.itertext()) == "HELLO BIG & OLD WORLD!"
    assert [etree.QName(each).localname for each in target] == ["g", "bx", "ex"]
    assert [(note.get("from"), note.text) for note in units["1"].iterfind("x:note", XLIFF)] == [
        ("knnmt", "score -0.5"), ("author", "Be kind"),
    ]  # fmt: skip
    assert units["2"].get("approved") == "no"
    assert units["3"].find("x:target", XLIFF) is None
    assert [note.text for note in units["4"].iterfind("x:note", XLIFF)] == ["score -0.5"]
    assert [mark.get("mid") for mark in units["5"].find("x:target", XLIFF)] == ["0", "1"]
    assert "".join(units["6"].find("x:target", XLIFF).itertext()) == "CALL ACME Inc. OR TERM"
    assert units["7"].find("x:target", XLIFF) is None
    assert root.find("x:file", XLIFF).get("target-language") == "ru"
    exact = tree("app.xlf", state=State.TRANSLATED).find(".//x:target", XLIFF)
    assert dict(exact.attrib) == {"state": "translated"}


def test_pairs_of_codes_know_each_other() -> None:
    codes = next(iter(opened("app.xlf").units)).source.codes
    assert [code.pair for code in codes] == [2, None, 0, 4, 3]
    codes = list(opened("app2.xliff").units)[1].source.codes
    assert [code.pair for code in codes] == [1, 0, None, None]


def test_xliff_2_states_and_notes() -> None:
    root = tree("app2.xliff")
    assert root.get("trgLang") == "ru"
    segments = list(root.iterfind(".//x:segment", XLIFF2))
    assert [segment.get("subState") for segment in segments] == ["knnmt:mt", "knnmt:mt", None, "knnmt:mt", "knnmt:mt"]
    assert "".join(segments[0].find("x:target", XLIFF2).itertext()) == "HELLO BIG WORLD. "
    unit = root.find(".//x:unit", XLIFF2)
    assert [etree.QName(each).localname for each in unit][:3] == ["notes", "originalData", "segment"]
    assert len(unit.find("x:notes", XLIFF2)) == 2
    again = opened("app2.xliff", translate(opened("app2.xliff")))
    assert {unit.state for unit in again.units} == {State.FUZZY}
    exact = opened("app2.xliff", translate(opened("app2.xliff"), state=State.TRANSLATED))
    assert {unit.state for unit in exact.units} == {State.TRANSLATED}


def test_a_prefix_of_the_namespace_stays() -> None:
    data = EXAMPLES["app.xlf"].replace(b"xmlns=", b"xmlns:p=")
    for name in (b"xliff", b"file", b"header", b"note", b"body", b"group", b"trans-unit", b"source", b"target",
                 b"seg-source", b"mrk", b"g", b"x", b"bx", b"ex", b"ph", b"alt-trans"):  # fmt: skip
        for end in (b" ", b">", b"/>"):
            data = data.replace(b"<" + name + end, b"<p:" + name + end).replace(
                b"</" + name + b">", b"</p:" + name + b">"
            )
    root = etree.fromstring(translate(opened("app.xlf", data)))
    assert len(root.findall(".//x:trans-unit/x:target", XLIFF)) == 5


def test_tmx_gets_variants() -> None:
    root = tree("memory.tmx")
    variants = root.find(".//tu").findall("tuv")
    assert [variant.get("{http://www.w3.org/XML/1998/namespace}lang") for variant in variants] == ["en-US", "ru", "fr"]
    assert [prop.text for prop in variants[1].iterfind("prop")] == ["needs-review", "score -0.5"]
    assert variants[1].find("seg").xpath("string(text()[last()])") == " "
    assert {unit.state for unit in opened("memory.tmx", etree.tostring(root)).units} == {State.FUZZY}


def test_qt_forms_and_states() -> None:
    root = tree("app.ts")
    assert root.get("language") == "ru"
    messages = root.findall(".//message")
    assert [len(each.findall("translation/numerusform")) for each in messages] == [0, 3, 3, 0, 0, 0]
    assert messages[0].find("translation").text == '&OPEN "IT"'
    assert messages[-1].find("translation").text == "Alt"
    done = tree("app.ts", state=State.TRANSLATED)
    assert [each.get("type") for each in done.iter("translation")] == [None] * 5 + ["vanished"]


def test_android_quantities_and_escapes() -> None:
    root = tree("strings.xml")
    strings = {each.get("name"): each for each in root.iter("string")}
    assert strings["hello"].xpath("string()") == 'HELLO YOU, DON\\\'T \\"PANIC\\" & GO\\n'
    assert strings["name"].text == "ACME"
    assert strings["ref"].text == "@string/hello"
    assert b"&app;" in etree.tostring(strings["app"])
    assert [each.get("quantity") for each in root.iter("item") if each.get("quantity")] == "one other few many".split()


# ------------------------------------------------------------------------------------------------------- the others


def test_json_yaml_and_string_catalogs_are_read_as_before_but_for_the_texts() -> None:
    before, after = json.loads(EXAMPLES["app.json"]), json.loads(translate(opened("app.json")))
    assert {**after, "title": before["title"], "quote": before["quote"], "item_one": before["item_one"],
            "nested": before["nested"]} == before  # fmt: skip
    assert after["nested"]["deep"] == ["FIRST", "SECÖND", 3, None]
    assert len(opened("app.json").left) == 1
    old, new = yaml.safe_load(EXAMPLES["en.yml"])["en"], yaml.safe_load(translate(opened("en.yml")))["ru"]
    assert new == {key: _shouted(value) if key != "count" else value for key, value in old.items()}
    catalog = json.loads(translate(opened("app.xcstrings")))["strings"]
    assert catalog["Hello %@"]["localizations"]["ru"]["stringUnit"] == {"state": "needs_review", "value": "HELLO %@"}
    assert set(catalog["files"]["localizations"]["ru"]["variations"]["plural"]) == {"one", "few", "many", "other"}
    assert catalog["keep"] == {"shouldTranslate": False}


def _shouted(value: Any) -> Any:
    if isinstance(value, list):
        return [_shouted(each) for each in value]
    return value.upper() if isinstance(value, str) else value


def test_tables_are_read_by_csv() -> None:
    before = list(csv.reader(EXAMPLES["table.csv"].decode().splitlines(keepends=True)))
    after = list(csv.reader(translate(opened("table.csv")).decode().splitlines(keepends=True)))
    for old, new in zip(before[1:], after[1:], strict=True):
        assert new == ([*old[:2], old[1].upper() if not old[1].isdigit() else "", *old[3:]] if old else [])


def test_markdown_has_the_same_blocks() -> None:
    parser = MarkdownIt("commonmark").enable("table")
    before, after = (parser.parse(data.decode()) for data in (EXAMPLES["page.md"], translate(opened("page.md"))))
    assert [token.type for token in before] == [token.type for token in after]
    kinds = [
        [child.type for child in token.children or () if child.type not in ("text", "softbreak")] for token in before
    ]
    assert kinds == [
        [child.type for child in token.children or () if child.type not in ("text", "softbreak")] for token in after
    ]


def test_html_has_the_same_tags() -> None:
    class Tags(html.parser.HTMLParser):
        def __init__(self, data: bytes) -> None:
            super().__init__()
            self.found: list[Any] = []
            self.feed(data.decode())

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.found.append((tag, attrs))

        def handle_endtag(self, tag: str) -> None:
            self.found.append(tag)

    before, after = Tags(EXAMPLES["page.html"]).found, Tags(translate(opened("page.html"))).found
    read = {'A "good" page', "Tip & trick", "A picture", "Send it", "Name"}
    assert sum(len(each[1]) for each in before if isinstance(each, tuple)) > len(read)
    assert after == [
        (each[0], [(name, value.upper() if value in read else "ru" if name == "lang" else value)
                   for name, value in each[1]])
        if isinstance(each, tuple) else each
        for each in before
    ]  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_can_be_read_again(name: str) -> None:
    again = open_document(
        translate(opened(name)), languages=EN_RU if name[-3:] in ("tmx", "csv", "tsv") else None, name=name
    )
    assert {shout(unit.source).text for unit in again.units} >= {
        shout(unit.source).text for unit in opened(name).units if name != "strings.xml"
    }


def test_attributes_of_tags_that_move_with_their_words() -> None:
    data = b'<p>See <a href="x" title="Help">this</a> or <img alt="A \'big\' one" src=a> now.</p>'
    document = opened("page.html", data)
    text, title, alt = document.units
    assert (title.key, title.source.text, alt.source.text) == ("title", "Help", "A 'big' one")
    title.set(Inline.plain('Hilfe "da"'))
    assert document.to_bytes() == data.replace(b"Help", b"Hilfe &quot;da&quot;")
    first, second, third = text.source.codes
    text.set(Inline("Jetzt das.", (third._replace(at=0), first._replace(at=6), second._replace(at=9))))
    assert document.to_bytes() == (
        b'<p><img alt="A \'big\' one" src=a>Jetzt <a href="x" title="Hilfe &quot;da&quot;">das</a>.</p>'
    )


def test_attributes_that_are_kept() -> None:
    for data in (
        b'<p translate="no" title="keep me">x</p>', b'<code title="keep me">x</code>', b'<a data-title="keep me"></a>',
        b'<meta name="viewport" content="keep me">', b'<input type="text" value="keep me">', b'<img alt="12">',
        b"<a href='x title=\"keep me\"'></a>", b'<!-- <img alt="keep me"> -->', b'<img alt="http://example.org">',
    ):  # fmt: skip
        assert list(opened("page.html", data).units) == [], data


def test_xliff_children_are_in_the_order_of_the_schemas() -> None:
    order = {"trans-unit": "source seg-source target".split(), "unit": "notes originalData".split(),
             "segment": "source target".split()}  # fmt: skip
    for name in ("app.xlf", "app2.xliff"):
        for element in tree(name).iter(etree.Element):
            expected = order.get(etree.QName(element).localname, [])
            children = [etree.QName(child).localname for child in element]
            ranks = [expected.index(child) if child in expected else len(expected) for child in children]
            assert ranks == sorted(ranks), children


def test_cues_without_empty_lines_between_them() -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\nHello\n2\n00:00:03,000 --> 00:00:04,000\n12\nWorld\n"
    document = opened("a.srt", data)
    assert [unit.source.text for unit in document.units] == ["Hello", "12 World"]
    next(document.units).set(Inline.plain("Hallo"))
    assert document.to_bytes() == data.replace(b"Hello", b"Hallo")


@pytest.mark.parametrize(
    ("cue", "units"),
    [
        ("Stop! Do not move.\nPut your hands up.", ["Stop! Do not move.", "Put your hands up."]),
        ("This is a sentence that\ngoes over two lines.", ["This is a sentence that goes over two lines."]),
        ("I spoke to Mr.\nSmith.", ["I spoke to Mr. Smith."]),
        ("<i>It is late.\nGo home.</i>", ["It is late. Go home."]),  # one tag around both
        ("<i>It is late.</i>\nGo home.", ["It is late.", "Go home."]),
        ("- Where to?\n– Home,\nof course.", ["Where to?", "Home, of course."]),
        ("[door opens]\nMARY: Who is there?", ["[door opens]", "MARY: Who is there?"]),
        ("And then\n♪ la la ♪", ["And then", "♪ la la ♪"]),
    ],
)
def test_sentences_and_speakers_stay_on_their_lines(cue: str, units: list[str]) -> None:
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{cue}\n".encode()
    document = opened("a.srt", data)
    assert [unit.source.text for unit in document.units] == units
    for unit in document.units:
        unit.set(unit.source)
    written = document.to_bytes()
    assert written.split() == data.split()
    assert written.count(b"\n") == data.count(b"\n")


def test_a_table_that_names_its_separator() -> None:
    for first in (b"sep=|\r\n", b'"sep=|"\n'):
        data = first + b"source|target\r\nHello, you; there|\r\n"
        document = opened("a.csv", data)
        next(document.units).set(Inline.plain("Hallo|"))
        assert document.to_bytes() == data.replace(b"there|", b'there|"Hallo|"')
