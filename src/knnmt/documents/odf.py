"""OpenDocument (ODT, ODS, ODP, ODG): the paragraphs of texts, tables and slides, with spans, notes and fields."""

import re
from collections.abc import Iterator
from functools import partial

from knnmt.documents.archive import Archive
from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, escape, prefixes_of, unescaped
from knnmt.documents.patches import Patch
from knnmt.documents.runs import Dialect, Paragraph, Token, Xml
from knnmt.documents.unit import Entry, Heading
from knnmt.errors import DataError
from knnmt.languages import closeness

_PARTS = ("content.xml", "styles.xml")  # the second has headers and footers
_BASE = "urn:oasis:names:tc:opendocument:xmlns:"
_NAMESPACES = {f"{_BASE}{name}:1.0": name for name in ("text", "table", "office", "style")}
_PARAGRAPHS = ("text:p", "text:h")
_CONTAINERS = frozenset("text:span text:a text:meta text:meta-field".split())
_STARTS = frozenset("text:bookmark-start text:reference-mark-start text:change-start office:annotation".split())
_ENDS = frozenset("text:bookmark-end text:reference-mark-end text:change-end office:annotation-end".split())
_NOT_OURS = frozenset("office:annotation text:tracked-changes table:tracked-changes".split())
_DROPPED = frozenset(["text:soft-page-break"])  # a word processor finds them itself
# properties that are none of the look
_PASSING = re.compile(
    r"""\s(?:officeooo:(?:paragraph-)?rsid|(?:fo|style):(?:language|country|script)(?:-\w+)?)="[^"]*\""""
)
_STYLE = re.compile(r"""<style:style\s([^>]*)>\s*(?:<style:text-properties([^>]*?)/>)?\s*</style:style>""")
_NAME = re.compile(r'(?:^|\s)style:name="([^"]*)"')
_LANGUAGE = re.compile(r'\sfo:language="([^"]*)"(?:\s+fo:country="([^"]*)")?')
_SPACES = re.compile("[ \t\r\n]+")
_WRITTEN = re.compile("\n|\t| {2,}")


def read_odf(archive: Archive) -> Iterator[Entry]:
    """The paragraphs of a document, its headers, footers and notes."""
    manifest = "META-INF/manifest.xml"
    if manifest in archive.members and "encryption-data" in archive.member(manifest).text:
        raise DataError(f"{archive.name}: the document is encrypted; save it without a password")
    found: list[Entry] = []
    for part in _PARTS:
        if part == _PARTS[0] or part in archive.members:
            found += _Reader(archive.member(part), part).paragraphs()
    yield from found
    if _PARTS[1] in archive.members and archive.target:
        patches = list(_languages(archive.member(_PARTS[1])))
        if patches:
            yield Heading(found, partial(iter, patches), _PARTS[1])


def _languages(content: Content) -> Iterator[Patch]:
    """The language of the default styles."""
    language, _, region = content.target.partition("-")
    for each in _LANGUAGE.finditer(content.text):
        if closeness(content.source, each[1]):
            yield Patch(*each.span(1), language)
            if each[2] is not None:
                yield Patch(*each.span(2), region if len(region) == 2 else "none")


class _Reader:
    def __init__(self, content: Content, part: str) -> None:
        self.content, self.part, self.number = content, part, 0
        self.prefixes = prefixes_of(content, _NAMESPACES)
        usual = {usual: spelt for spelt, usual in self.prefixes.items()}
        self.lead = f"{usual.get('text', 'text')}:"
        self.dialect = _Spaces(self.lead)
        self.plain = frozenset(_plain_styles(content))
        self.spaced = True  # a space here would be collapsed with that before it

    def paragraphs(self) -> Iterator[Entry]:
        """The paragraphs that are no comments, deleted text or results of formulas."""
        roots = ("document-content", "document-styles")
        for element in elements(self.content, *_PARAGRAPHS, root=roots, prefixes=self.prefixes):
            if not any(each.name in _NOT_OURS or _is_value(each) for each in element.ancestors()):
                entry = self._paragraph(element)
                if entry.units:
                    yield entry

    def _paragraph(self, element: Element) -> Paragraph:
        self.number += 1
        number, self.spaced = self.number, True
        tokens = list(self._tokens(element))
        nested = [self._paragraph(each) for child in element.children for each in _inside(child)]
        span = element.inner, element.outer
        return Paragraph(self.content, self.part, span, tokens, self.dialect, number=number, nested=nested)

    def _tokens(self, element: Element) -> Iterator[Token]:
        at = element.inner
        for child in element.children:
            yield from self._text(at, child.start)
            at = child.end
            if child.name not in _DROPPED:
                yield from self._element(child)
        yield from self._text(at, element.outer)

    def _text(self, start: int, end: int) -> Iterator[Token]:
        text = _SPACES.sub(" ", unescaped(self.content.text[start:end]))
        text = text.removeprefix(" ") if self.spaced else text
        if text:
            self.spaced = text.endswith(" ")
            yield Token("text", (Xml(start, end),), text)

    def _element(self, child: Element) -> Iterator[Token]:
        xml = (Xml(child.start, child.end),)
        if child.name in ("text:s", "text:line-break"):
            self.spaced = False
            yield Token("text", xml, " " * self._spaces(child) if child.name == "text:s" else "\n")
        elif child.name == "text:tab":
            self.spaced = False
            yield Token("tab", xml)
        elif child.name in _CONTAINERS and not child.empty:
            if child.name == "text:span" and child.get(f"{self.lead}style-name") in self.plain:
                yield from self._tokens(child)
                return
            yield Token("open", (Xml(child.start, child.inner),))
            yield from self._tokens(child)
            yield Token("close", (Xml(child.outer, child.end),))
        elif child.name in _STARTS or child.name in _ENDS:
            kind = "start" if child.name in _STARTS else "end"
            name = child.get(f"{self.lead}name") or child.get(f"{self.lead}change-id") or child.get("office:name")
            yield Token(kind, xml, key=(child.name.removesuffix("-start").removesuffix("-end"), name))
        else:  # notes, frames, fields, what nobody knows
            self.spaced = False
            yield Token("code", xml)

    def _spaces(self, child: Element) -> int:
        count = child.get(f"{self.lead}c", "1")
        return int(count) if count.isdecimal() and len(count) < 4 else 1


class _Spaces(Dialect):
    def __init__(self, lead: str) -> None:
        self.lead = lead

    def text(self, text: str, format: str, last: str) -> str:
        """The text; spaces that would be collapsed are elements."""
        lead, out, at = self.lead, list[str](), 0
        if text.startswith(" ") and last in ("", " ", "\n"):
            out, at = [f"<{lead}s/>"], 1
        for found in (*_WRITTEN.finditer(text, at), None):
            out.append(escape(text[at : found.start() if found is not None else None]))
            if found is None:
                break
            at = found.end()
            more = len(found[0]) - 1
            out.append({"\n": f"<{lead}line-break/>", "\t": f"<{lead}tab/>"}.get(
                found[0], f' <{lead}s {lead}c="{more}"/>'))  # fmt: skip
        return "".join(out)


def _is_value(element: Element) -> bool:
    """Whether it is a cell whose text is that of a number, a date or a formula."""
    if element.name not in ("table:table-cell", "table:covered-table-cell"):
        return False
    kind = element.get("office:value-type")
    return bool(element.get("table:formula") or element.get("office:string-value")) or kind not in ("", "string")


def _inside(element: Element) -> Iterator[Element]:
    """The paragraphs in an element, but for comments and those nested in others of them."""
    if element.name in _PARAGRAPHS:
        yield element
    elif element.name not in _NOT_OURS and not _is_value(element):
        for child in element.children:
            yield from _inside(child)


def _plain_styles(content: Content) -> Iterator[str]:
    """The styles of spans that differ in nothing that can be seen: a word processor marks its sessions so."""
    for found in _STYLE.finditer(content.text):
        name = _NAME.search(found[1])
        inherits = 'style:family="text"' not in found[1] or "parent-style-name" in found[1]
        if name is not None and not inherits and not _PASSING.sub("", found[2] or "").strip():
            yield name[1]
