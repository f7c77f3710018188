"""SpreadsheetML: the strings of cells, shared or in their cells. Numbers, formulas and names stay."""

import re
from collections.abc import Collection, Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, escape, prefixes_of, unescaped
from knnmt.documents.runs import Dialect, Paragraph, Token, Xml
from knnmt.documents.unit import Entry, Left
from knnmt.text.words import is_text

_NAMESPACES = dict.fromkeys(
    ("http://schemas.openxmlformats.org/spreadsheetml/2006/main", "http://purl.oclc.org/ooxml/spreadsheetml/main"), "x"
)
_ESCAPE = re.compile("_x(?![dD][89a-fA-F])([0-9A-Fa-f]{4})_")  # but for halves of characters
_SPECIAL = re.compile("_(?=x[0-9A-Fa-f]{4}_)|[\x00-\x08\x0b-\x1f\ufffe\uffff]")


def read_shared(content: Content, part: str, names: Collection[str]) -> Iterator[Entry]:
    """The shared strings of a workbook."""
    return _read(content, part, names, "x:si", "sst")


def read_sheet(content: Content, part: str, names: Collection[str]) -> Iterator[Entry]:
    """The strings that a sheet has in its cells."""
    return _read(content, part, names, "x:is", "worksheet")


def names_in(content: Content) -> Iterator[str]:
    """The columns that a table or a pivot table names: the cells of these names must keep them."""
    prefixes = prefixes_of(content, _NAMESPACES)
    roots = ("table", "pivotCacheDefinition")
    for element in elements(content, "x:tableColumn", "x:cacheField", root=roots, prefixes=prefixes):
        yield _characters(element.get("name"))


def _read(content: Content, part: str, names: Collection[str], name: str, root: str) -> Iterator[Entry]:
    prefixes = prefixes_of(content, _NAMESPACES)
    spelt = next((spelt for spelt, usual in prefixes.items() if usual == "x"), "")
    lead = f"{spelt}:" if spelt else ""
    for number, element in enumerate(elements(content, name, root=(root,), prefixes=prefixes), start=1):
        rich = any(child.name == "x:r" for child in element.children)
        tokens = [token for child in element.children for token in _tokens(content, child)]
        text = "".join(token.text for token in tokens)
        if text.strip() in names and is_text(text):
            yield Left(number, "name of a table's column")
        elif is_text(text):
            span = element.inner, element.outer
            yield Paragraph(content, part, span, tokens, _Strings(lead, rich=rich), number=number)


class _Strings(Dialect):
    def __init__(self, lead: str, *, rich: bool) -> None:
        self.lead, self.rich = lead, rich

    def text(self, text: str, format: str, last: str) -> str:
        """A run with its properties, or the text alone where there are no runs."""
        text = escape(_SPECIAL.sub(lambda found: f"_x{ord(found[0]):04X}_", text))
        written = f'<{self.lead}t xml:space="preserve">{text}</{self.lead}t>'
        return f"<{self.lead}r>{format}{written}</{self.lead}r>" if self.rich else written


def _tokens(content: Content, child: Element) -> Iterator[Token]:
    xml = (Xml(child.start, child.end),)
    if child.name == "x:t":
        yield Token("text", xml, _characters(unescaped(content.text[child.inner : child.outer])))
    elif child.name == "x:r":
        properties = next((each for each in child.children if each.name == "x:rPr"), None)
        format = content.text[properties.start : properties.end] if properties is not None else ""
        texts = (content.text[each.inner : each.outer] for each in child.children if each.name == "x:t")
        yield Token("text", xml, _characters(unescaped("".join(texts))), format)
    # phonetic hints are those of the source's characters


def _characters(text: str) -> str:
    """A text without the escapes of control characters; a line ends as in the other formats."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text).replace("\r\n", "\n").replace("\r", "\n")
