"""Office Open XML (DOCX, PPTX, XLSX): which parts of a document have text, by their content types."""

import re
from collections.abc import Callable, Iterator
from functools import partial

from knnmt.documents.archive import Archive
from knnmt.documents.content import Content
from knnmt.documents.drawing import read_drawing
from knnmt.documents.markup import elements
from knnmt.documents.patches import Patch
from knnmt.documents.spreadsheet import names_in, read_shared, read_sheet
from knnmt.documents.unit import Entry, Heading
from knnmt.documents.word import read_word
from knnmt.errors import DataError
from knnmt.languages import closeness

_TYPES = "[Content_Types].xml"
_LANGUAGE = re.compile(r"""<(?:\w+:)?lang\s[^>]*?(?<=\s)(?:\w+:)?val\s*=\s*["']([^"']+)["']""")
_WORD = ("document.main", "template.main", "header", "footer", "footnotes", "endnotes")
_DRAWING = ("presentationml.slide", "presentationml.notesslide", "drawing", "drawingml.chart", "drawingml.diagramdata",
            "ms-office.drawingml.diagramdrawing")  # fmt: skip
# what reads a part, by its content type in lower case, without what all of them have
_READERS: dict[str, Callable[[Content, str], Iterator[Entry]]] = {
    **{f"wordprocessingml.{name}": read_word for name in _WORD},
    "ms-word.document.macroenabled.main": read_word,
    "ms-word.template.macroenabledtemplate.main": read_word,
    **dict.fromkeys(_DRAWING, read_drawing),
}
_NAMING = ("spreadsheetml.table", "spreadsheetml.pivotcachedefinition")  # parts that name columns as cells do
_COMMON = re.compile(r"^application/vnd\.(?:openxmlformats-officedocument\.)?|\+xml$")
_MAIN = {"docx": ("wordprocessingml", "ms-word"), "pptx": ("presentationml",), "xlsx": ("spreadsheetml",)}


def read_docx(archive: Archive) -> Iterator[Entry]:
    """The paragraphs of a Word document, its headers, footers, notes, charts and diagrams."""
    found = list(_paragraphs(archive, _parts(archive, "docx")))
    yield from found
    for part, kind in _parts(archive, "docx"):
        if kind == "wordprocessingml.styles":
            content = archive.member(part)
            languages = [each for each in _LANGUAGE.finditer(content.text) if closeness(archive.source, each[1])]
            patches = [Patch(*each.span(1), archive.target) for each in languages]
            if archive.target and patches:
                yield Heading(found, partial(iter, patches), part)


def read_pptx(archive: Archive) -> Iterator[Entry]:
    """The paragraphs of a presentation's slides and notes, charts and diagrams."""
    return _paragraphs(archive, _parts(archive, "pptx"))


def read_xlsx(archive: Archive) -> Iterator[Entry]:
    """The strings of a workbook's cells, and the paragraphs of text boxes and charts."""
    parts = _parts(archive, "xlsx")
    names = {name for part, kind in parts if kind in _NAMING for name in names_in(archive.member(part))}
    for part, kind in parts:
        if kind == "spreadsheetml.sharedstrings":
            yield from read_shared(archive.member(part), part, names)
        elif kind == "spreadsheetml.worksheet":
            yield from read_sheet(archive.member(part), part, names)
    yield from _paragraphs(archive, parts)


def _paragraphs(archive: Archive, parts: list[tuple[str, str]]) -> Iterator[Entry]:
    for part, kind in parts:
        if (read := _READERS.get(kind)) is not None:
            yield from read(archive.member(part), part)


def _parts(archive: Archive, format: str) -> list[tuple[str, str]]:
    """The parts of a document with their types, in the order of the archive."""
    declared = {
        element.get("PartName").lstrip("/").lower(): _COMMON.sub("", element.get("ContentType").lower())
        for element in elements(archive.member(_TYPES), "Override", root=("Types",))
    }
    is_of = {name: any(kind.startswith(words) for kind in declared.values()) for name, words in _MAIN.items()}
    if not is_of[format]:
        other = next((name for name, found in is_of.items() if found), None)
        raise DataError(
            f"{archive.name}: this is no {format.upper()} file, but {other.upper() if other else 'another'}"
        )
    return [(name, kind) for name in archive.members if (kind := declared.get(name.lower(), ""))]
