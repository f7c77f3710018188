"""Office documents: everything but the words stays, and their own libraries read the result."""

import io
import re
import zipfile

import docx
import openpyxl
import pptx
import pytest
from lxml import etree

from knnmt.documents import Document, open_document
from knnmt.documents import archive as archives
from knnmt.errors import DataError, KnnmtError
from knnmt.languages import Languages
from knnmt.text.inline import Code, Inline

from .examples import shout, translate
from .office import (
    DOCUMENT,
    DOCX,
    ODT,
    OFFICE,
    XML,
    S,
    W,
    archive,
    field,
    members,
    odf,
    ooxml,
    paragraph,
    run,
)  # fmt: skip

EN_DE = Languages("en", "de")


def opened(name: str, data: bytes | None = None) -> Document:
    return open_document(OFFICE[name] if data is None else data, languages=EN_DE, name=name)


def texts(document: Document) -> list[str]:
    return [unit.source.written() for unit in document.units]


def word(*content: str) -> Document:
    """A document of one paragraph."""
    body = f"{XML}<w:document {W}><w:body>{paragraph(*content)}</w:body></w:document>"
    return opened("a.docx", ooxml({"word/document.xml": ("wordprocessingml.document.main", body)}, "word/document.xml"))


def written(document: Document) -> str:
    """The first paragraph of a document."""
    found = re.search("<w:p [^>]*>(.*)</w:p>", members(document.to_bytes())["word/document.xml"], re.DOTALL)
    assert found is not None
    return found[1].replace(' xml:space="preserve"', "")


@pytest.mark.parametrize("name", OFFICE)
def test_without_translations_a_document_is_the_same(name: str) -> None:
    document = opened(name)
    assert list(document.units)
    assert document.to_bytes() == OFFICE[name]


@pytest.mark.parametrize("name", OFFICE)
def test_only_parts_with_translations_change(name: str) -> None:
    document = opened(name)
    unit = next(iter(document.units))
    unit.set(shout(unit.source))
    assert document.to_bytes() == document.to_bytes()
    before, after = (zipfile.ZipFile(io.BytesIO(data)) for data in (OFFICE[name], document.to_bytes()))
    assert after.comment == b"kept"
    changed = {unit.key, "word/styles.xml", "styles.xml"}
    for old, new in zip(before.infolist(), after.infolist(), strict=True):
        assert (new.filename, new.compress_type, new.date_time) == (old.filename, old.compress_type, old.date_time)
        assert new.external_attr == old.external_attr
        assert old.filename in changed or before.read(old) == after.read(new)
    assert before.read(unit.key) != after.read(unit.key)


@pytest.mark.parametrize("name", OFFICE)
def test_what_is_written_is_read_again(name: str) -> None:
    document = opened(name)
    new = translate(document)
    for part, content in members(new).items():
        if part.endswith(".xml"):
            etree.fromstring(content.encode())
    again = open_document(new, name=name)
    assert [unit.source for unit in again.units] == [shout(unit.source) for unit in document.units]
    for unit in again.units:
        unit.set(unit.source)
    assert members(again.to_bytes()) == members(new)


@pytest.mark.parametrize("name", OFFICE)
def test_codes_may_move(name: str) -> None:
    document = opened(name)
    for unit in document.units:
        text = unit.source.text
        # all words before, all codes behind
        unit.set(Inline(text, tuple(code._replace(at=len(text)) for code in unit.source.codes)))
    for part, content in members(document.to_bytes()).items():
        if part.endswith(".xml"):
            etree.fromstring(content.encode())


# ---------------------------------------------------------------------------------------------------------- libraries


def test_python_docx_reads_the_translation() -> None:
    document = opened("letter.docx")
    assert texts(document)[:6] == [
        "A heading",
        "Press <g1>the red</g1> <g3>button</g3> & wait.",
        "See <g1>our page</g1> today",
        "Go to <g1>this link</g1> or page <x3/> now",
        "Marked text",
        "Name",
    ]
    new = docx.Document(io.BytesIO(translate(document)))
    first, second, third = new.paragraphs[:3]
    assert [(each.text, each.bold) for each in first.runs] == [("A HEADING", True)]
    assert [(each.text, each.bold, each.italic) for each in second.runs] == [
        ("PRESS ", None, None), ("THE RED", True, None), (" ", None, None), ("BUTTON", True, True),
        (" & WAIT.", None, None),
    ]  # fmt: skip
    assert third.text == "SEE OUR PAGE TODAY"
    assert new.sections[0].header.paragraphs[0].text == "HEAD OF THE PAGE"
    assert new.tables[0].cell(0, 0).text == "A CELL"
    parts = members(translate(opened("letter.docx")))
    assert "A comment" in parts["word/comments.xml"]
    assert " A FOOTNOTE." in parts["word/footnotes.xml"]
    assert "<w:delText>deleted</w:delText>" in parts["word/document.xml"]
    assert parts["word/document.xml"].count("TEXT IN A BOX") == 3
    assert '<w:lang w:val="de" w:eastAsia="ja-JP"/>' in parts["word/styles.xml"]


def test_openpyxl_reads_the_translation() -> None:
    document = opened("book.xlsx")
    assert len(document.left) == 1  # the header of a table
    book = openpyxl.load_workbook(io.BytesIO(translate(document)), rich_text=True)
    sheet = book["My sheet"]
    assert sheet["A1"].value == "A STRING"
    assert [str(piece) for piece in sheet["B1"].value] == ["SOME ", "BOLD", " TEXT"]
    assert (sheet["C1"].value, sheet["A2"].value, sheet["B2"].value) == (3.5, "Column", "IN THE CELL")
    assert sheet["C2"].value == '=A1&"x"'
    assert sheet["A3"].value == " TWO\nLINES & _X0041_ "
    assert "IN A SHAPE" in members(translate(document))["xl/drawings/drawing1.xml"]


def test_python_pptx_reads_the_translation() -> None:
    parts = members(translate(opened("talk.pptx")))
    assert '<a:endParaRPr lang="en-US"/></a:p>' in parts["ppt/slides/slide1.xml"]
    assert (
        '<a:rPr lang="de" b="1"><a:hlinkClick r:id="rId2"/></a:rPr><a:t>LINKED TEXT' in parts["ppt/slides/slide1.xml"]
    )
    assert "SAY THIS" in parts["ppt/notesSlides/notesSlide1.xml"]
    show = pptx.Presentation()
    box = show.slides.add_slide(show.slide_layouts[5]).shapes.title
    assert box is not None
    box.text_frame.text = "First\nTwo\vThree"
    box.text_frame.paragraphs[0].add_run().text = " bold"
    box.text_frame.paragraphs[0].runs[1].font.bold = True
    data = io.BytesIO()
    show.save(data)
    document = opened("x.pptx", data.getvalue())
    assert texts(document) == ["First<g1> bold</g1>", "Two\nThree"]
    new = pptx.Presentation(io.BytesIO(translate(document)))
    title = new.slides[0].shapes.title
    assert title is not None
    assert title.text_frame.text == "FIRST BOLD\nTWO\vTHREE"
    assert title.text_frame.paragraphs[0].runs[1].font.bold


def test_open_document_keeps_spaces_notes_and_comments() -> None:
    parts = members(translate(opened("letter.odt")))
    content = parts["content.xml"]
    assert '>PRESS THE <text:span text:style-name="T1">RED <text:s text:c="1"/>BUTTON</text:span>' in content
    assert "<text:p>Deleted text</text:p>" in content
    assert "<text:p>A comment</text:p>" in content
    assert "GOOD</text:span> NOTE</text:p></text:note-body></text:note> HERE." in content
    assert "<text:p>NAME<text:tab/>VALUE<text:line-break/>SECOND LINE</text:p>" in content
    assert 'fo:language="de" fo:country="none"' in parts["styles.xml"]
    assert "HEAD <text:page-number>" in parts["styles.xml"]
    assert texts(opened("book.ods")) == ["A string"]
    with zipfile.ZipFile(io.BytesIO(translate(opened("letter.odt")))) as file:
        first = file.infolist()[0]
    assert (first.filename, first.compress_type, first.header_offset) == ("mimetype", zipfile.ZIP_STORED, 0)


# -------------------------------------------------------------------------------------------------------------- runs


def test_text_of_other_formats_is_in_pairs_and_space_is_not() -> None:
    document = word(run("a"), run(" ", "<w:b/>"), run("bb"), run("    ", "<w:u/>"), run("cc"))
    assert texts(document) == ["a bb<g1>    </g1>cc"]  # a long space may be a line to write on
    only = word(run("a b", "<w:b/>"), run(" "), run("c", "<w:b/>"))
    assert texts(only) == ["a b c"]
    next(iter(only.units)).set(Inline.plain("x"))
    assert written(only) == "<w:r><w:rPr><w:b/></w:rPr><w:t>x</w:t></w:r>"


def test_a_pair_inside_a_pair_and_codes_beside_each_other_are_one() -> None:
    start, end = '<w:bookmarkStart w:id="1" w:name="a"/>', '<w:bookmarkEnd w:id="1"/>'
    document = word(
        run("See "), start, '<w:hyperlink r:id="r1">', run("it", "<w:b/>"), "</w:hyperlink>", end, run(" now")
    )
    assert texts(document) == ["See <g1>it</g1> now"]
    crossing = word(
        run("a "), start, run("b "), '<w:hyperlink r:id="r1">', run("c"), end, run("d"), "</w:hyperlink>", run(" e")
    )
    assert texts(crossing) == ["a <x1/>b <g2>c<x3/>d</g2> e"]
    break_, image = '<w:bookmarkStart w:id="5" w:name="x"/>', "<w:r><w:drawing/></w:r>"
    assert texts(word(run("a "), break_, image, run(" b"))) == ["a <x1/> b"]


def test_codes_that_a_translation_lost_come_last() -> None:
    document = word(run("a "), "<w:r><w:drawing/></w:r>", run(" "), run("b", "<w:b/>"))
    unit = next(iter(document.units))
    unit.set(Inline("x", (Code(0, "<x9/>", None),)))
    assert written(document) == "<w:r><w:t>x</w:t></w:r><w:r><w:drawing/></w:r>"


def test_fields() -> None:
    nested = field("IF " + field("PAGE", run("1")), run("yes"))
    assert texts(word(run("a "), nested, run(" b"))) == ["a <x1/> b"]
    begin = field('TOC \\o "1-3"', "").split('<w:r><w:fldChar w:fldCharType="end"/></w:r>')[0]
    contents = word(begin, '<w:hyperlink w:anchor="x">', run("1"), "<w:r><w:tab/></w:r>", run("Chapter"),
                    "<w:r><w:tab/></w:r>", field("PAGEREF x", run("7")), "</w:hyperlink>")  # fmt: skip
    assert texts(contents) == ["Chapter"]
    simple = word(run("of "), '<w:fldSimple w:instr=" NUMPAGES ">', run("3"), "</w:fldSimple>", run(" pages"))
    assert texts(simple) == ["of <x1/> pages"]


def test_a_tab_inside_a_link_is_a_code() -> None:
    document = word(
        run("see "), '<w:hyperlink r:id="r1">', run("one"), "<w:r><w:tab/></w:r>", run("two"), "</w:hyperlink>"
    )
    assert texts(document) == ["see <g1>one <x2/>two</g1>"]


def test_other_prefixes_are_known_by_their_namespaces() -> None:
    document_xml = members(DOCX)["word/document.xml"].replace("w:", "ns0:").replace("xmlns:w=", "xmlns:ns0=")
    data = replaced("word/document.xml", document_xml)
    document = opened("a.docx", data)
    assert texts(document) == texts(opened("letter.docx"))
    new = members(translate(document))["word/document.xml"]
    assert "<ns0:r><ns0:rPr><ns0:b/></ns0:rPr><ns0:t" in new
    etree.fromstring(new.encode())
    content = members(ODT)["content.xml"].replace("text:", "t:").replace(":xmlns:t:", ":xmlns:text:")
    content = content.replace("xmlns:text=", "xmlns:t=")
    assert texts(opened("a.odt", archive({**members(ODT), "content.xml": content}))) == texts(opened("letter.odt"))


# ----------------------------------------------------------------------------------------------------------- hostile


def replaced(part: str, content: str | bytes) -> bytes:
    return archive({**members(DOCX), part: content})


def flagged(data: bytes) -> bytes:
    """An archive whose members say that they are encrypted."""
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + b"\x01" + data[at + 1 :]


def twice() -> bytes:
    data = io.BytesIO(DOCX)
    with zipfile.ZipFile(data, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("word/document.xml", "<x/>")
    return data.getvalue()


BAD = {
    "no archive": (b"<html></html>", "the archive is corrupt"),
    "empty": (b"", "the archive is corrupt"),
    "cut": (DOCX[:-40], "the archive is corrupt"),
    "bytes changed": (DOCX[:300] + b"\xff" * 20 + DOCX[320:], "the archive is corrupt"),
    "old Word": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500, "encrypted, or in the format of Office 97"),
    "encrypted": (flagged(DOCX), "the document is encrypted"),
    "no parts": (archive({"a.txt": "x"}), r"no \[Content_Types\].xml"),
    "no document": (ooxml({}, "x"), "no DOCX file, but another"),
    "a workbook": (OFFICE["book.xlsx"], "no DOCX file, but XLSX"),
    "an ODT": (ODT, r"no \[Content_Types\].xml"),
    "bad XML": (replaced("word/document.xml", DOCUMENT[:-9]), "document.xml:2: invalid XML"),
    "other XML": (replaced("word/document.xml", "<a/>"), "the root element is <a>"),
    "entities": (replaced("word/document.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"), "DOCTYPE"),
    "binary": (replaced("word/document.xml", b"\0\1\2"), "NUL"),
    "deep": (replaced("word/document.xml", f"<w:document {W}>" + "<w:a>" * 999 + "</w:a>" * 999 + "</w:document>"),
             "nested more than 256 deep"),
    "a header": (replaced("word/header1.xml", "<w:hdr"), "header1.xml:1: invalid XML"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_documents_are_refused_in_one_line(name: str) -> None:
    data, reason = BAD[name]
    with pytest.raises(DataError, match=reason) as caught:
        opened("a.docx", data)
    message = str(caught.value)
    assert message.startswith("a.docx:")
    assert "\n" not in message
    assert len(message) < 300


def test_a_member_that_is_there_twice() -> None:
    with pytest.raises(DataError, match="there twice"):
        opened("a.docx", twice())


def test_bombs_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "SMALL", 1 << 16)
    data = archive({**members(DOCX), "word/media/zeros": b"\0" * (1 << 22)})
    with pytest.raises(DataError, match=r"unpacks from 0\.0 to 4 MiB, which no document does"):
        opened("a.docx", data)
    lying = data.replace((1 << 22).to_bytes(4, "little"), (1 << 10).to_bytes(4, "little"))
    with pytest.raises(DataError, match="corrupt"):
        opened("a.docx", lying)


def test_an_encrypted_open_document() -> None:
    encrypted = archive({**members(ODT), "META-INF/manifest.xml": "<m><encryption-data/></m>"})
    with pytest.raises(DataError, match="encrypted"):
        opened("a.odt", encrypted)
    with pytest.raises(DataError, match=r"no content\.xml"):
        opened("a.odt", archive({"mimetype": "x"}))


@pytest.mark.parametrize("name", OFFICE)
def test_a_document_that_is_cut_anywhere_is_refused(name: str) -> None:
    whole = OFFICE[name]
    for end in range(0, len(whole), len(whole) // 20):
        with pytest.raises(KnnmtError, match=re.escape(name)):
            opened(name, whole[:end])


def test_a_paragraph_with_very_many_runs_takes_no_time() -> None:
    many = "".join(run(f"word{number} ", "<w:b/>" * (number % 2)) for number in range(2000))
    marks = "".join(
        f'<w:bookmarkStart w:id="{number}"/>{run("x")}<w:bookmarkEnd w:id="{number}"/>' for number in range(2000)
    )
    document = word(many, "<w:r><w:tab/></w:r>", marks)
    assert len(list(document.units)) == 2
    translate(document)


def test_numbers_of_spaces_and_escapes_that_nobody_writes() -> None:
    for count, spaces in (("3", 3), ("\u00b2", 1), ("9" * 5000, 1), ("-1", 1)):
        body = f'<text:p>A<text:s text:c="{count}"/>b</text:p>'
        assert texts(opened("a.odt", odf("text", body))) == [f"A{' ' * spaces}b"]
    shared = f"{XML}<sst {S}><si><t>a_xD800_b_x0041_</t></si></sst>"
    book = opened("a.xlsx", ooxml({"xl/sharedStrings.xml": ("spreadsheetml.sharedStrings", shared)}, "x"))
    assert texts(book) == ["a_xD800_bA"]
