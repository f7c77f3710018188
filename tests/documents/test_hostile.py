"""Corrupt and hostile files: one clear line each, with the file and the line; nothing is written over."""

import re
import time
import tracemalloc
from pathlib import Path

import pytest

from knnmt.documents import markdown, open_document
from knnmt.documents.formats import FORMATS
from knnmt.errors import DataError, KnnmtError, UsageError
from knnmt.languages import Languages

from .examples import EN_RU, EXAMPLES, opened, translate

XLIFF = EXAMPLES["app.xlf"].decode()
BOMB = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">]>'
)
HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def xliff(body: str, before: str = "") -> str:
    return f'<?xml version="1.0"?>\n{before}<xliff version="1.2"><file><body>{body}</body></file></xliff>\n'


# name, content, the line, what is said
FILES: list[tuple[str, str | bytes, int, str]] = [
    ("a.json", '{"a": "x",\n "b": "Hi \\ud83d"}', 2, "lone surrogate"),
    ("a.po", 'msgid "a\nmsgstr ""\n', 1, "does not end on its line"),
    ("a.po", 'msgid "a"\n', 2, "cut off"),
    ("a.po", 'msgid "a"\nmsgs', 2, "'msgs' is neither"),
    ("a.po", 'msgid "a"\nmsgstr "b', 2, "does not end"),
    ("a.po", 'msgid "a"\nmsgstr\n', 2, "msgstr without a string"),
    ("a.po", 'msgstr "a"\n', 1, "msgstr may not stand here"),
    ("a.po", 'msgid "a"\nmsgid "b"\nmsgstr ""\n', 2, "msgid may not stand here after msgid"),
    ("a.po", 'msgid "a"\nmsgid_plural "b"\nmsgstr "x"\n', 3, "msgstr may not stand here"),
    ("a.po", 'msgid "a"\nmsgid_plural "b"\nmsgstr[1] "x"\n', 3, "not the next plural form"),
    ("a.po", '"a"\n', 1, "without msgid"),
    ("a.po", "<html></html>\n", 1, "neither a keyword"),
    ("a.po", HEADER.encode() + b'msgid "\xff"\nmsgstr ""\n', 4, "not valid UTF-8"),
    ("a.po", HEADER.replace("UTF-8", "klingon"), 1, "unknown encoding 'klingon'"),
    ("a.po", HEADER.replace("\\n", "\\nPlural-Forms: nplurals=2; plural=import os;\\n"), 2, "invalid Plural-Forms"),
    ("a.po", b"\0\1\2\3\4" * 9, 1, "binary"),
    ("a.po", 'msgid "a"\nmsgstr ""\n'.encode("utf-16-le")[:-1], 1, "NUL"),
    ("a.xlf", "", 1, "empty"),
    ("a.xlf", "   \n ", 1, "empty"),
    ("a.xlf", XLIFF[:700], 15, "invalid XML"),
    ("a.xlf", XLIFF[: XLIFF.index("</xliff>")], 29, "invalid XML"),
    ("a.xlf", XLIFF.replace("</group>", "</grp>", 1), 25, "mismatched tag"),
    ("a.xlf", xliff("", BOMB), 2, "DOCTYPE declares more than plain entities"),
    ("a.xlf", xliff("&x;", '<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), 2, "DOCTYPE"),
    ("a.xlf", xliff("", '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p;]>'), 2, "DOCTYPE"),
    ("a.xlf", xliff("", "<!DOCTYPE x [<!ATTLIST"), 2, "DOCTYPE"),
    ("a.xlf", xliff("&undefined;"), 2, "undefined entity"),
    ("a.xlf", xliff("<a>" * 1000 + "</a>" * 1000), 2, "nested more than 256 deep"),
    ("a.xlf", '<xliff version="1.2">\n' + "<a>" * 100_000, 2, "nested more than 256 deep"),
    ("a.xlf", xliff("<b:x/>"), 2, "unbound prefix"),
    ("a.xlf", xliff('<x a="1" a="2"/>'), 2, "duplicate attribute"),
    ("a.xlf", xliff("x\x08y"), 2, "invalid XML"),
    ("a.xlf", xliff("") + "<again/>", 3, "junk after document element"),
    ("a.xlf", xliff("").encode() + b"\xff", 3, "not valid UTF-8"),
    ("a.xlf", xliff("").replace("1.0", '1.0" encoding="utf-17', 1), 1, "unknown encoding"),
    ("a.xlf", "<html/>", 1, "the root element is <html>, not <xliff>"),
    ("a.xlf", "just text", 1, "invalid XML"),
    ("a.tmx", "<tmx><body><tu>", 1, "invalid XML"),
    ("a.tmx", "<xliff/>", 1, "not <tmx>"),
    ("a.tmx", BOMB + "<tmx>&d;</tmx>", 1, "DOCTYPE"),
    ("a.ts", "<!DOCTYPE TS>\n<TS><context><message>", 2, "invalid XML"),
    ("a.ts", BOMB.replace("x", "TS", 1) + "\n<TS>&d;</TS>", 1, "DOCTYPE"),
    ("strings.xml", "<resources><string>a</resources>", 1, "mismatched tag"),
    ("strings.xml", BOMB + "<resources><string>&d;</string></resources>", 1, "DOCTYPE"),
    ("a.json", "", 1, "invalid JSON"),
    ("a.json", '{"a": "b"', 1, "invalid JSON"),
    ("a.json", '{\n"a": "b",\n}', 3, "invalid JSON"),
    ("a.json", "{'a': 'b'}", 1, "invalid JSON"),
    ("a.json", "[" * 100_000 + "]" * 100_000, 1, "nested"),
    ("a.json", "[" * 300 + "]" * 300, 1, "nested more than 200 deep"),
    ("a.json", b'{"a": "\xe4"}', 1, "not valid UTF-8; the text is probably WINDOWS-1252"),
    ("a.json", '{"a": ' + "9" * 10_000 + "}", 1, "invalid JSON"),
    ("a.xcstrings", '{"strings": {}}', 1, "no sourceLanguage"),
    ("a.yml", "a: 'b", 1, "invalid YAML"),
    ("a.yml", "a:\n\t- b", 2, "invalid YAML"),
    ("a.yml", "a: *b", 1, "undefined alias"),
    ("a.yml", "a: \x07", 1, "invalid YAML"),
    ("a.yml", "[" * 20_000, 0, "nested too deeply"),
    ("a.properties", "a = \\u00g1\n", 1, "four hexadecimal digits"),
    ("a.strings", '"a" = "b"', 1, "expected"),
    ("a.strings", '"a" = "b";\n"c" "d";', 2, "expected ="),
    ("a.strings", '"a" = "b;', 1, "not closed"),
    ("a.srt", "no subtitles\n", 1, "no cue"),
    ("a.srt", "1\n00:00:01 --> 00:00:02\nText\n", 2, "invalid times"),
    ("a.vtt", "00:01.000 --> 00:02.000\nText\n", 1, "WEBVTT"),
    ("a.csv", "source,target\na\n", 2, "1 cells, but the header has 2"),
    ("a.csv", 'source,target\n"a,b\n', 2, "not closed"),
    ("a.csv", 'source,target\n"a"b,\n', 2, "behind the closing quote"),
    ("a.html", b"<p>a\0b</p>", 1, "NUL"),
    ("a.md", b"# a\n\xff\n", 2, "not valid UTF-8"),
    ("a.txt", b"PK\x03\x04\0\0\0", 1, "binary"),
    ("a.po", b"\xff\xfe" + "msgid 'a'".encode("utf-16-be"), 1, "neither a keyword"),
    ("a.po", b"\xef\xbb\xbf\xff", 1, "not valid UTF-8"),
    ("a.po", b"PK\x03\x04 is an archive", 1, "neither a keyword"),
    ("a.xlf", b"\xfe\xff" + xliff("").encode("utf-16-le"), 1, "invalid XML"),
    ("a.xlf", '{"a": "b"}', 1, "invalid XML"),
    ("a.json", xliff(""), 1, "invalid JSON"),
    ("a.json", b"\xef\xbb\xbf\xef\xbb\xbf{}", 1, "invalid JSON"),
    ("a.strings", b"bplist00\xd1\x01\x02", 1, "not valid UTF-8"),
    ("a.properties", "a = b\nc = Hi \\ud83d there\n", 2, "lone surrogate"),
    ("a.strings", '"a" = "Hi \\Ude00 there";\n', 1, "lone surrogate"),
    ("a.tsv", "source\ttarget\na\tb\tc\n", 2, "3 cells, but the header has 2"),
    ("a.pptx", b"PK\x03\x04 cut off", 0, "the archive is corrupt"),
    ("a.docx", b"\x1f\x8b\x08 gzip", 0, "the archive is corrupt"),
    ("a.xlsx", "a,b\n1,2\n", 0, "the archive is corrupt"),
    ("a.odt", "", 0, "the archive is corrupt"),
]


@pytest.mark.parametrize(("name", "content", "line", "reason"), FILES, ids=range(len(FILES)))
def test_corrupt_files_are_refused_in_one_line(
    name: str, content: str | bytes, line: int, reason: str, tmp_path: Path
) -> None:
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    out.write_bytes(b"kept")
    with pytest.raises(DataError) as caught:
        open_document(path, path.suffix[1:].replace("xlf", "xliff").replace("ts", "qt") if name == "a.ts" else None,
                      languages=EN_RU).write(out)  # fmt: skip
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert reason in message
    assert out.read_bytes() == b"kept"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "out"])


def test_there_are_sixty_of_them_and_some_of_every_format() -> None:
    assert len(FILES) >= 60
    suffixes = {Path(name).suffix for name, *_ in FILES}
    assert [each.name for each in FORMATS if suffixes.isdisjoint(each.suffixes)] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_that_is_cut_anywhere_is_refused_or_the_same(name: str) -> None:
    whole = EXAMPLES[name]
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        try:
            document = opened(name, whole[:end])
        except KnnmtError as error:
            refused = str(error)
            assert re.match(rf"{re.escape(name)}[:,]", refused), refused
        else:
            assert document.to_bytes() == whole[:end]
            translate(document)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "en.yml"])
@pytest.mark.parametrize("piece", ["a ", "<b>", "</i><b", "*x ", "](", "[^", '"', "&", "<!--", "<?", "`", "{a"])
def test_very_long_lines_take_no_time(name: str, piece: str) -> None:
    text = piece * (40_000 // len(piece))
    begun = time.monotonic()
    try:
        document = opened(name, EXAMPLES[name].replace(b"Hello", text.encode()) + text.encode())
    except KnnmtError as error:
        refused = str(error)
        assert len(refused) < 400
    else:
        translate(document)
    assert time.monotonic() - begun < 2


def test_other_languages_are_refused() -> None:
    for name, data, reason in (
        ("a.po", HEADER.replace("\\n", "\\nLanguage: fr\\n").encode(), "into 'fr'"),
        ("app.xlf", EXAMPLES["app.xlf"].replace(b'source-language="en"', b'source-language="de"'), "from 'de'"),
        ("app2.xliff", EXAMPLES["app2.xliff"].replace(b'srcLang="en"', b'srcLang="en" trgLang="fr"'), "into 'fr'"),
        ("app.ts", EXAMPLES["app.ts"].replace(b"<TS ", b'<TS language="de_DE" '), "into 'de_DE'"),
        ("memory.tmx", EXAMPLES["memory.tmx"].replace(b'"en', b'"sv'), "none of its 3 units has 'en'"),
    ):
        with pytest.raises(UsageError, match=reason):
            open_document(data, languages=Languages("en", "ru"), name=name)
    with pytest.raises(UsageError, match="--langs"):
        open_document(EXAMPLES["memory.tmx"], name="memory.tmx")


def test_columns_must_be_known() -> None:
    with pytest.raises(UsageError, match="no column 'de'; it has 'id', 'source'"):
        open_document(EXAMPLES["table.csv"], name="a.csv", columns=("source", "de"))
    with pytest.raises(UsageError, match="--columns SOURCE,TARGET"):
        open_document(b"a,b\n1,2\n", name="a.csv")
    one = open_document(b"id;text\n1;Hello\n", name="a.csv", columns=("text",))
    assert translate(one) == b"id;text\n1;HELLO\n"


@pytest.mark.parametrize("name", ["app.po", "app.properties", "app.strings"])
def test_a_very_long_string_takes_little_memory(name: str) -> None:
    key = {"app.po": b"Hello", "app.properties": b"Hello", "app.strings": b"Line one"}[name]
    data = EXAMPLES[name].replace(key, b"word. " * 80_000, 1)
    tracemalloc.start()
    opened(name, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(data)


def test_a_block_of_data_in_markdown_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "LONGEST", 30)
    document = opened("page.md", b"# A title\n\n" + b"word " * 10 + b"\n\nText\n")
    assert [unit.source.text for unit in document.units] == ["A title", "Text"]
    assert [(left.line, left.reason) for left in document.left] == [(3, "block of more than 30 characters")]
