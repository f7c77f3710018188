"""WordprocessingML: the paragraphs of a part of a DOCX file, with runs, fields, links and tracked changes."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, escape, prefixes_of, unescaped
from knnmt.documents.runs import Dialect, Paragraph, Token, Xml, balanced
from knnmt.documents.unit import Entry

_NAMESPACES = dict.fromkeys(
    (
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    ),
    "w",
)
_ROOTS = ("document", "hdr", "ftr", "footnotes", "endnotes", "glossaryDocument")
# elements of a paragraph whose content is text of it
_CONTAINERS = frozenset("w:hyperlink w:ins w:moveTo w:smartTag w:customXml w:dir w:bdo w:sdt w:fldSimple".split())
_PROPERTIES = frozenset("w:sdtPr w:sdtEndPr w:smartTagPr w:customXmlPr".split())
_STARTS = frozenset("w:bookmarkStart w:commentRangeStart w:permStart w:moveFromRangeStart w:moveToRangeStart".split())
_ENDS = frozenset("w:bookmarkEnd w:commentRangeEnd w:permEnd w:moveFromRangeEnd w:moveToRangeEnd".split())
_DROPPED = frozenset("w:proofErr w:lastRenderedPageBreak w:softHyphen".split())  # what a word processor finds itself
_PASSING = re.compile(r"<(?:\w+:)?(?:lang|noProof)(?:\s[^>]*)?/>")  # properties that are none of the look
_WRITTEN = re.compile("[\n\t\u2011]")
_LINK = re.compile(r"\s*HYPERLINK\b", re.IGNORECASE)


def read_word(content: Content, part: str) -> Iterator[Entry]:
    """The paragraphs of a part, also those of text boxes."""
    reader = _Reader(content, part)
    for element in elements(content, "w:p", root=_ROOTS, prefixes=reader.prefixes):
        entry = reader.paragraph(element)
        if entry.units:
            yield entry


class _Runs(Dialect):
    def __init__(self, lead: str) -> None:
        self.lead = lead
        self.elements = {"\n": f"<{lead}br/>", "\t": f"<{lead}tab/>", "\u2011": f"<{lead}noBreakHyphen/>"}

    def text(self, text: str, format: str, last: str) -> str:
        """A run with its properties."""
        out, at = [f"<{self.lead}r>{format}"], 0
        for found in (*_WRITTEN.finditer(text), None):
            if piece := text[at : found.start() if found is not None else None]:
                out.append(f'<{self.lead}t xml:space="preserve">{escape(piece)}</{self.lead}t>')
            if found is not None:
                out.append(self.elements[found[0]])
                at = found.end()
        return "".join((*out, f"</{self.lead}r>"))


class _Reader:
    def __init__(self, content: Content, part: str) -> None:
        self.content, self.part, self.number = content, part, 0
        self.prefixes = prefixes_of(content, _NAMESPACES)
        lead = next((spelt for spelt, usual in self.prefixes.items() if usual == "w"), "w")
        self.lead = f"{lead}:" if lead else ""
        self.dialect = _Runs(self.lead)

    def paragraph(self, element: Element) -> Paragraph:
        """The entry of a paragraph, with those nested in it."""
        self.number += 1
        number = self.number
        start = next((child.end for child in element.children if child.name == "w:pPr"), element.inner)
        tokens = _fields(list(self._tokens(element)))
        nested = [self.paragraph(each) for child in element.children for each in _inside(child)]
        return Paragraph(
            self.content, self.part, (start, element.outer), tokens, self.dialect, number=number, nested=nested
        )

    def _tokens(self, element: Element) -> Iterator[Token]:
        for child in element.children:
            if child.name in ("w:pPr", *_DROPPED):
                continue
            whole = (Xml(child.start, child.end),)
            if child.name == "w:r":
                yield from self._run(child)
            elif child.name in _CONTAINERS and not child.empty:
                yield from self._container(child)
            elif child.name in _STARTS or child.name in _ENDS:
                kind = "start" if child.name in _STARTS else "end"
                yield Token(kind, whole, key=(child.name.removesuffix("Start").removesuffix("End"), self._get(child)))
            else:  # deleted text, formulas, what nobody knows
                yield Token("code", whole)

    def _get(self, element: Element, name: str = "id") -> str:
        return element.get(self.lead + name)

    def _container(self, child: Element) -> Iterator[Token]:
        if child.name == "w:fldSimple" and not _LINK.match(self._get(child, "instr")):
            yield Token("code", (Xml(child.start, child.end),))
            return
        inner = next((each for each in child.children if each.name == "w:sdtContent"), child)
        first, last = inner.inner, inner.outer
        for each in inner.children:
            if each.name in _PROPERTIES:
                first = each.end
        yield Token("open", (Xml(child.start, first),))
        if not inner.empty:
            yield from self._tokens(_without_properties(inner))
        yield Token("close", (Xml(last, child.end),))

    def _run(self, run: Element) -> Iterator[Token]:
        """The text of a run, and everything else in it as runs of their own."""
        properties = next((each for each in run.children if each.name == "w:rPr"), None)
        raw = self.content.text[properties.start : properties.end] if properties is not None else ""
        format = _PASSING.sub("", raw)
        if re.fullmatch(r"<[^<>]*>\s*</[^<>]*>|<[^<>]*/>", format):
            format = ""
        open, close = f"<{self.lead}r>{raw}", f"</{self.lead}r>"
        for child in run.children:
            if child is properties or child.name in _DROPPED:
                continue
            xml = (Xml(child.start, child.end, open, close),)
            if child.name == "w:t":
                text = unescaped(self.content.text[child.inner : child.outer])
                text = text if child.get("xml:space") == "preserve" else text.strip(" \t\r\n")
                yield Token("text", xml, " ".join(re.split(r"[\r\n\t]+", text)), format)
            elif child.name == "w:cr" or (child.name == "w:br" and self._get(child, "type") in ("", "textWrapping")):
                yield Token("text", xml, "\n", format)
            elif child.name == "w:noBreakHyphen":
                yield Token("text", xml, "\u2011", format)
            elif child.name in ("w:tab", "w:ptab", "w:br"):
                yield Token("tab", xml)
            elif child.name == "w:fldChar":
                yield Token("field", xml, key=self._get(child, "fldCharType"))
            elif child.name == "w:instrText":
                instruction = unescaped(self.content.text[child.inner : child.outer])
                yield Token("field", xml, key=("instruction", instruction))
            else:
                yield Token("code", xml)


def _without_properties(element: Element) -> Element:
    kept = [each for each in element.children if each.name not in _PROPERTIES]
    return Element(element.name, element.start, element.inner, element.parent, outer=element.outer, children=kept)


def _inside(element: Element) -> Iterator[Element]:
    """The paragraphs in an element, but for those nested in others of them."""
    if element.name == "w:p":
        yield element
    else:
        for child in element.children:
            yield from _inside(child)


def _fields(tokens: list[Token]) -> list[Token]:
    """The tokens with fields as codes: a link is a container of its text; of others, the program makes the text.

    A field that goes on beyond the paragraph, as a table of contents does, is a code where it begins or ends.
    """
    found: list[Token] = []
    begun: list[tuple[int, str]] = []  # the place of each open field, and its instruction
    for token in tokens:
        if token.kind != "field":
            found.append(token)
            continue
        found.append(token._replace(kind="code"))
        if token.key == "begin":
            begun.append((len(found) - 1, ""))
        elif isinstance(token.key, tuple) and begun:
            begun[-1] = (begun[-1][0], begun[-1][1] + token.key[1])
        elif token.key == "separate" and begun:
            _join(found, begun[-1][0])
        elif token.key == "end" and begun:
            start, instruction = begun.pop()
            if _LINK.match(instruction):
                found[start] = found[start]._replace(kind="start", key=("field", start))
                found[-1] = found[-1]._replace(kind="end", key=("field", start))
            else:
                _join(found, start)
    return found


def _join(tokens: list[Token], start: int) -> None:
    """Make one code of the last tokens, unless they begin or end more than they have."""
    some = tokens[start:]
    if balanced(some):
        tokens[start:] = [Token("code", tuple(xml for token in some for xml in token.xml))]
