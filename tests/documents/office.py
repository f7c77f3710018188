# ruff: noqa: E501
"""Small office documents with the corners of their formats, made from short XML."""

import io
import zipfile
from collections.abc import Mapping

XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" xmlns:v="urn:schemas-microsoft-com:vml" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
P = f'{A} xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
ODF = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"' for name, long in
               {"office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing",
                "fo": "xsl-fo-compatible"}.items()) + ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:officeooo="http://openoffice.org/2009/office" xmlns:dc="http://purl.org/dc/elements/1.1/"'  # fmt: skip
TYPES = "application/vnd.openxmlformats-officedocument."


def archive(members: Mapping[str, str | bytes], stored: tuple[str, ...] = ("mimetype", "image.png")) -> bytes:
    """A ZIP archive with these members in this order."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.comment = b"kept"
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6))
            info.compress_type = zipfile.ZIP_STORED if name.endswith(stored) else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            file.writestr(info, content)
    return data.getvalue()


def members(data: bytes) -> dict[str, str]:
    """The text of the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name).decode("utf-8", "replace") for name in file.namelist()}


def ooxml(parts: Mapping[str, tuple[str, str]], main: str) -> bytes:
    """A package: the type and the content of each part by its name; a part without a type is not declared."""
    overrides = "".join(f'<Override PartName="/{name}" ContentType="{kind if "/" in kind else TYPES + kind + "+xml"}"/>'
                        for name, (kind, _) in parts.items() if kind)  # fmt: skip
    package = "http://schemas.openxmlformats.org/package/2006/"
    types = f'{XML}<Types xmlns="{package}content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Default Extension="png" ContentType="image/png"/>{overrides}</Types>'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    relations = f'{XML}<Relationships xmlns="{package}relationships"><Relationship Id="rId1" Type="{office}" Target="{main}"/></Relationships>'
    return archive(
        {"[Content_Types].xml": types, "_rels/.rels": relations, **{name: text for name, (_, text) in parts.items()}}
    )


def relations(**targets: str) -> str:
    """The relations of a part: `kind_id=target`."""
    base = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    rows = "".join(f'<Relationship Id="{name.split("_")[1]}" Type="{base}/{name.split("_")[0]}" Target="{target}"/>'
                   for name, target in targets.items())  # fmt: skip
    return f'{XML}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{rows}</Relationships>'


# -------------------------------------------------------------------------------------------------------------- Word


def run(text: str, properties: str = "", space: bool = True) -> str:
    """A run of Word."""
    kept = ' xml:space="preserve"' if space else ""
    return f'<w:r w:rsidR="00A1">{f"<w:rPr>{properties}</w:rPr>" if properties else ""}<w:t{kept}>{text}</w:t></w:r>'


def field(instruction: str, result: str) -> str:
    """A field of Word, in runs."""
    return (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        f'<w:r><w:instrText xml:space="preserve"> {instruction} </w:instrText></w:r>'
        f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{result}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


def paragraph(*content: str, properties: str = "") -> str:
    """A paragraph of Word."""
    return f'<w:p w:rsidR="00B2">{properties}{"".join(content)}</w:p>'


BOX = "<w:txbxContent>" + paragraph(run("Text in a box")) + "</w:txbxContent>"
BODY = (
    paragraph(run("A ", "<w:b/>"), '<w:proofErr w:type="spellStart"/>', run("hea", '<w:b/><w:lang w:val="en-US"/>'), run("ding", "<w:b/><w:noProof/>"), properties='<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>'),
    paragraph(run("Press "), run("the red", "<w:b/>"), run(" ", "<w:b/>"), run("button", "<w:b/><w:i/>"), run(" &amp; wait.")),
    paragraph(run("See "), '<w:hyperlink r:id="rId9">', run("our page", '<w:rStyle w:val="Hyperlink"/>'), "</w:hyperlink>", run(" today")),
    paragraph(run("Go to "), field('HYPERLINK "http://example.org"', run("this link", "<w:u/>")), run(" or page "), field("PAGEREF x", run("12")), run(" now")),
    paragraph('<w:bookmarkStart w:id="1" w:name="_Toc1"/>', run("Marked text"), '<w:bookmarkEnd w:id="1"/>', '<w:bookmarkStart w:id="2" w:name="_GoBack"/><w:bookmarkEnd w:id="2"/>'),
    paragraph(run("Name"), "<w:r><w:tab/></w:r>", run("Value"), '<w:r><w:br/><w:t>second line</w:t><w:br w:type="page"/></w:r>', run("after the page")),
    paragraph(run("It was "), '<w:del w:id="3" w:author="x" w:date="2020-01-01T00:00:00Z"><w:r><w:delText>deleted</w:delText></w:r></w:del>', '<w:ins w:id="4" w:author="x" w:date="2020-01-01T00:00:00Z">', run("inserted"), "</w:ins>", run(" here")),
    paragraph('<w:commentRangeStart w:id="0"/>', run("Commented"), '<w:commentRangeEnd w:id="0"/><w:r><w:commentReference w:id="0"/></w:r>', run(" text with a note"), '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r>', run(" inside.")),
    paragraph(run("Before the box "), f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>', run(" behind it")),
    paragraph(f"<w:r><w:pict><v:textbox>{BOX.replace('Text', 'Only text')}</v:textbox></w:pict></w:r>"),
    paragraph("<w:sdt><w:sdtPr><w:id w:val=\"7\"/></w:sdtPr><w:sdtContent>", run("In a control"), "</w:sdtContent></w:sdt>", run(" and out of it")),
    paragraph(run("12.5"), "<w:r><w:tab/></w:r>"),
    "<w:p/>",
    paragraph(run("  Spaces   stay "), run(" x", space=False), '<w:r><w:noBreakHyphen/><w:t>y</w:t><w:softHyphen/><w:t>z</w:t><w:sym w:font="Wingdings" w:char="F0E0"/></w:r>', "<m:oMath><m:r><m:t>abc</m:t></m:r></m:oMath>", run(" end")),
    '<w:tbl><w:tblPr/><w:tblGrid><w:gridCol w:w="10"/></w:tblGrid><w:tr><w:tc><w:tcPr/>' + paragraph(run("A cell")) + "</w:tc></w:tr></w:tbl>",
)  # fmt: skip
DOCUMENT = f'{XML}<w:document {W} mc:Ignorable=""><w:body>{"".join(BODY)}<w:sectPr><w:headerReference w:type="default" r:id="rId1"/></w:sectPr></w:body></w:document>'
STYLES = f'{XML}<w:styles {W}><w:docDefaults><w:rPrDefault><w:rPr><w:lang w:val="en-US" w:eastAsia="ja-JP"/></w:rPr></w:rPrDefault></w:docDefaults></w:styles>'
DOCX = ooxml({
    "word/document.xml": ("wordprocessingml.document.main", DOCUMENT),
    "word/_rels/document.xml.rels": ("", relations(header_rId1="header1.xml", styles_rId2="styles.xml", footnotes_rId3="footnotes.xml", comments_rId4="comments.xml")),
    "word/header1.xml": ("wordprocessingml.header", f"{XML}<w:hdr {W}>{paragraph(run('Head of the page'))}</w:hdr>"),
    "word/footnotes.xml": ("wordprocessingml.footnotes", f'{XML}<w:footnotes {W}><w:footnote w:id="2">{paragraph("<w:r><w:footnoteRef/></w:r>", run(" A footnote."))}</w:footnote></w:footnotes>'),
    "word/comments.xml": ("wordprocessingml.comments", f'{XML}<w:comments {W}><w:comment w:id="0" w:author="x">{paragraph(run("A comment"))}</w:comment></w:comments>'),
    "word/styles.xml": ("wordprocessingml.styles", STYLES),
    "word/media/image.png": ("", "\x89PNG"),
}, "word/document.xml")  # fmt: skip

# -------------------------------------------------------------------------------------------------------- PowerPoint


def slide(root: str, *paragraphs: str) -> str:
    """A slide with a text box."""
    shape = f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="Title 1"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/>{"".join(paragraphs)}</p:txBody></p:sp>'
    return f'{XML}<p:{root} {P}><p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{shape}</p:spTree></p:cSld></p:{root}>'


SLIDE = slide(
    "sld",
    '<a:p><a:pPr lvl="0"/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>A </a:t></a:r><a:r><a:rPr lang="en-US" dirty="0" err="1"/><a:t>title</a:t></a:r><a:endParaRPr lang="en-US"/></a:p>',
    '<a:p><a:r><a:rPr lang="en-US"/><a:t>Some </a:t></a:r><a:r><a:rPr lang="en-US" b="1"><a:hlinkClick r:id="rId2"/></a:rPr><a:t>linked text</a:t></a:r><a:br><a:rPr lang="en-US"/></a:br><a:r><a:rPr lang="en-US"/><a:t>New line\tTab</a:t></a:r></a:p>',
    '<a:p><a:fld id="{B0}" type="slidenum"><a:rPr lang="en-US"/><a:t>7</a:t></a:fld></a:p><a:p/>',
    "<a:p><a:r><a:t>12</a:t></a:r></a:p>",
)
PPTX = ooxml({
    "ppt/presentation.xml": ("presentationml.presentation.main", f'{XML}<p:presentation {P}><p:sldIdLst><p:sldId id="256" r:id="rId1"/></p:sldIdLst></p:presentation>'),
    "ppt/_rels/presentation.xml.rels": ("", relations(slide_rId1="slides/slide1.xml")),
    "ppt/slides/slide1.xml": ("presentationml.slide", SLIDE),
    "ppt/slides/_rels/slide1.xml.rels": ("", relations(notesSlide_rId1="../notesSlides/notesSlide1.xml")),
    "ppt/notesSlides/notesSlide1.xml": ("presentationml.notesSlide", slide("notes", "<a:p><a:r><a:t>Say this</a:t></a:r></a:p>")),
    "ppt/media/image.png": ("", "\x89PNG"),
}, "ppt/presentation.xml")  # fmt: skip

# ------------------------------------------------------------------------------------------------------------- Excel

SHARED = (
    "<si><t>A string</t></si>",
    "<si><r><t>Some </t></r><r><rPr><b/><sz val=\"11\"/></rPr><t>bold</t></r><r><rPr><sz val=\"11\"/></rPr><t xml:space=\"preserve\"> text</t></r></si>",
    "<si><t>Column</t></si>",
    "<si><t>12</t></si>",
    "<si><t xml:space=\"preserve\"> Two_x000D_\nlines &amp; _x005F_x0041_ </t><rPh sb=\"0\" eb=\"1\"><t>x</t></rPh><phoneticPr fontId=\"1\"/></si>",
    "<si/>",
)  # fmt: skip
ROWS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1"><v>3.5</v></c></row>'
    '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2" t="inlineStr"><is><t>In the cell</t></is></c><c r="C2" t="str"><f>A1&amp;"x"</f><v>A stringx</v></c></row>'
    '<row r="3"><c r="A3" t="s"><v>4</v></c></row>'
)
XLSX = ooxml({
    "xl/workbook.xml": ("spreadsheetml.sheet.main", f'{XML}<workbook {S}><sheets><sheet name="My sheet" sheetId="1" r:id="rId1"/></sheets></workbook>'),
    "xl/_rels/workbook.xml.rels": ("", relations(worksheet_rId1="worksheets/sheet1.xml", sharedStrings_rId2="sharedStrings.xml")),
    "xl/worksheets/sheet1.xml": ("spreadsheetml.worksheet", f'{XML}<worksheet {S}><sheetData>{ROWS}</sheetData><tableParts count="1"><tablePart r:id="rId1"/></tableParts></worksheet>'),
    "xl/worksheets/_rels/sheet1.xml.rels": ("", relations(table_rId1="../tables/table1.xml")),
    "xl/sharedStrings.xml": ("spreadsheetml.sharedStrings", f'{XML}<sst {S} count="5" uniqueCount="6">{"".join(SHARED)}</sst>'),
    "xl/tables/table1.xml": ("spreadsheetml.table", f'{XML}<table {S} id="1" name="T" displayName="T" ref="A2:A3"><tableColumns count="1"><tableColumn id="1" name="Column"/></tableColumns></table>'),
    "xl/drawings/drawing1.xml": ("drawing", f'{XML}<xdr:wsDr xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing" {A}><xdr:txBody><a:bodyPr/><a:p><a:r><a:t>In a shape</a:t></a:r></a:p></xdr:txBody></xdr:wsDr>'),
}, "xl/workbook.xml")  # fmt: skip

# ------------------------------------------------------------------------------------------------------ OpenDocument

MANIFEST = '<?xml version="1.0" encoding="UTF-8"?>\n<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" manifest:version="1.2"><manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/><manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'


def odf(kind: str, body: str, **more: str) -> bytes:
    """An OpenDocument file."""
    mime = f"application/vnd.oasis.opendocument.{kind}"
    automatic = '<style:style style:name="T1" style:family="text"><style:text-properties fo:font-weight="bold"/></style:style><style:style style:name="T2" style:family="text"><style:text-properties officeooo:rsid="0001"/></style:style>'
    name = {"text": "text", "spreadsheet": "spreadsheet", "presentation": "presentation"}[kind]
    content = f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document-content {ODF} office:version="1.2"><office:automatic-styles>{automatic}</office:automatic-styles><office:body><office:{name}>{body}</office:{name}></office:body></office:document-content>'
    return archive(
        {
            "mimetype": mime,
            "content.xml": content,
            "Pictures/image.png": "\x89PNG",
            **more,
            "META-INF/manifest.xml": MANIFEST.format(kind=mime),
        }
    )


ODT_STYLES = f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document-styles {ODF} office:version="1.2"><office:styles><style:default-style style:family="paragraph"><style:text-properties fo:language="en" fo:country="US"/></style:default-style></office:styles><office:master-styles><style:master-page style:name="Standard"><style:header><text:p>Head <text:page-number>1</text:page-number></text:p></style:header></style:master-page></office:master-styles></office:document-styles>'
ODT = odf(
    "text",
    "<text:tracked-changes><text:changed-region><text:deletion><text:p>Deleted text</text:p></text:deletion></text:changed-region></text:tracked-changes>"
    '<text:h text:outline-level="1">A <text:span text:style-name="T2">head</text:span>ing</text:h>'
    '<text:p text:style-name="P1">\n  Press  the <text:span text:style-name="T1">red<text:s text:c="2"/>button</text:span> &amp; wait<text:note text:id="n1" text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body><text:p>A <text:span text:style-name="T1">good</text:span> note</text:p></text:note-body></text:note> here.</text:p>'
    '<text:p>Name<text:tab/>Value<text:line-break/>second line</text:p>'
    '<text:p><text:bookmark-start text:name="b"/>See <text:a xlink:href="http://example.org">our page</text:a><text:bookmark-end text:name="b"/> or <text:date>1.1.2020</text:date> now<text:soft-page-break/></text:p>'
    '<text:p>A <office:annotation office:name="c"><dc:creator>x</dc:creator><text:p>A comment</text:p></office:annotation>commented<office:annotation-end office:name="c"/> word</text:p>'
    '<text:p>Around <draw:frame draw:name="f"><draw:text-box><text:p>Text in a box</text:p></draw:text-box></draw:frame>it</text:p>'
    "<text:p>12</text:p><text:p/>",
    **{"styles.xml": ODT_STYLES},
)  # fmt: skip
ODS = odf(
    "spreadsheet",
    '<table:table table:name="My sheet"><table:table-row><table:table-cell office:value-type="string"><text:p>A string</text:p></table:table-cell>'
    '<table:table-cell office:value-type="float" office:value="3"><text:p>three</text:p></table:table-cell>'
    '<table:table-cell table:formula="of:=[.A1]" office:value-type="string"><text:p>A result</text:p></table:table-cell></table:table-row></table:table>',
)
ODP = odf("presentation", '<draw:page draw:name="page1"><draw:frame><draw:text-box><text:p>A <text:span text:style-name="T1">bold</text:span> title</text:p></draw:text-box></draw:frame></draw:page>')  # fmt: skip

OFFICE: dict[str, bytes] = {
    "letter.docx": DOCX, "talk.pptx": PPTX, "book.xlsx": XLSX, "letter.odt": ODT, "book.ods": ODS, "talk.odp": ODP,
}  # fmt: skip
