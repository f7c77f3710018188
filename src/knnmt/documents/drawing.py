"""DrawingML: the paragraphs of slides, notes, text boxes, charts and diagrams."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, escape, prefixes_of, quoted, unescaped
from knnmt.documents.runs import Dialect, Paragraph, Token, Xml
from knnmt.documents.unit import Entry

_NAMESPACES = dict.fromkeys(
    ("http://schemas.openxmlformats.org/drawingml/2006/main", "http://purl.oclc.org/ooxml/drawingml/main"), "a"
)
_ROOTS = ("sld", "notes", "wsDr", "chartSpace", "dataModel", "drawing", "userShapes")
_PASSING = re.compile(r"""\s(?:dirty|err|smtClean|noProof|altLang)\s*=\s*(?:"[^"]*"|'[^']*')""")  # none of the look
_LANGUAGE = re.compile(r"""(?<=\s)lang\s*=\s*(?:"[^"]*"|'[^']*')""")


def read_drawing(content: Content, part: str) -> Iterator[Entry]:
    """The paragraphs of a part."""
    prefixes = prefixes_of(content, _NAMESPACES)
    spelt = next((spelt for spelt, usual in prefixes.items() if usual == "a"), "a")
    dialect = _Runs(f"{spelt}:" if spelt else "")
    for number, element in enumerate(elements(content, "a:p", root=_ROOTS, prefixes=prefixes), start=1):
        children = [each for each in element.children if each.name not in ("a:pPr", "a:endParaRPr")]
        if not children:
            continue
        span = children[0].start, children[-1].end
        tokens = [token for child in children for token in _tokens(content, child)]
        entry = Paragraph(content, part, span, tokens, dialect, number=number)
        if entry.units:
            yield entry


class _Runs(Dialect):
    def __init__(self, lead: str) -> None:
        self.lead = lead

    def text(self, text: str, format: str, last: str) -> str:
        """Runs with their properties; line breaks stand between them."""
        lead, pieces = self.lead, text.split("\n")
        runs = [f"<{lead}r>{format}<{lead}t>{escape(piece)}</{lead}t></{lead}r>" if piece else "" for piece in pieces]
        return f"<{lead}br>{format}</{lead}br>".join(runs)


def _tokens(content: Content, child: Element) -> Iterator[Token]:
    xml = (Xml(child.start, child.end),)
    properties = next((each for each in child.children if each.name == "a:rPr"), None)
    format = content.text[properties.start : properties.end] if properties is not None else ""
    if properties is not None:
        head = _PASSING.sub("", content.text[properties.start : properties.inner])
        if content.target:
            head = _LANGUAGE.sub(f'lang="{quoted(content.target)}"', head)
        format = head + format[properties.inner - properties.start :]
    text = next((each for each in child.children if each.name == "a:t"), None)
    if child.name == "a:br":
        yield Token("text", xml, "\n", format)
    elif child.name == "a:r" and text is not None:
        before, after = content.text[child.start : text.inner], content.text[text.outer : child.end]
        for found in re.finditer("\t|[^\t]+", content.text[text.inner : text.outer]):
            piece = (Xml(text.inner + found.start(), text.inner + found.end(), before, after),)
            raw = unescaped(found[0])
            yield Token("tab" if raw == "\t" else "text", piece, raw, format)
    else:  # fields, formulas
        yield Token("code", xml)
