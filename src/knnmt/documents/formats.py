"""The formats of documents: their names, suffixes and readers, and which of them a file has."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from knnmt.documents.android import read_android
from knnmt.documents.apple import read_strings
from knnmt.documents.archive import opened
from knnmt.documents.content import Content, decoded
from knnmt.documents.html import read_html
from knnmt.documents.json_messages import read_json
from knnmt.documents.lines import read_lines
from knnmt.documents.markdown import read_markdown
from knnmt.documents.markup import spelled
from knnmt.documents.odf import read_odf
from knnmt.documents.ooxml import read_docx, read_pptx, read_xlsx
from knnmt.documents.po import read_po
from knnmt.documents.properties import read_properties
from knnmt.documents.properties import spelled as spelled_in_java
from knnmt.documents.qt import read_qt
from knnmt.documents.subtitles import read_srt, read_vtt
from knnmt.documents.tables import read_csv, read_tsv
from knnmt.documents.tmx import read_tmx
from knnmt.documents.unit import Entry
from knnmt.documents.xcstrings import read_xcstrings
from knnmt.documents.xliff import read_xliff
from knnmt.documents.yaml_messages import read_yaml
from knnmt.errors import UsageError


@dataclass(frozen=True)
class Format:
    """A format of documents. `spell` writes a character that the encoding of a file does not have."""

    name: str  # as --format takes it
    label: str  # as people call it
    suffixes: tuple[str, ...]
    read: Callable[[Any], Iterable[Entry]]  # of a `Content`, or of an `Archive`
    declares: str | None = None  # where a file names its encoding, as `content.decoded` knows it
    spell: Callable[[str], str] | None = None
    archive: bool = False  # a ZIP archive of XML
    bilingual: bool = False  # with room for source and translation
    notes: bool = False  # with room for a note on each translation

    def decoded(self, data: bytes, name: str) -> Content:
        """The bytes of a file as text, or as members of an archive."""
        return opened(data, name) if self.archive else decoded(data, name, self.declares)


FORMATS = (
    Format("po", "gettext PO", (".po", ".pot"), read_po, "catalog", bilingual=True),
    Format("xliff", "XLIFF", (".xlf", ".xliff"), read_xliff, "xml", spelled, bilingual=True, notes=True),
    Format("tmx", "TMX", (".tmx",), read_tmx, "xml", spelled, bilingual=True, notes=True),
    Format("qt", "Qt Linguist", (".ts",), read_qt, "xml", spelled, bilingual=True),
    Format("android", "Android strings", (".xml",), read_android, "xml", spelled),
    Format("html", "HTML", (".html", ".htm", ".xhtml"), read_html, "page", spelled),
    Format("markdown", "Markdown", (".md", ".markdown"), read_markdown),
    Format("json", "JSON", (".json", ".arb"), read_json),
    Format("yaml", "YAML", (".yaml", ".yml"), read_yaml),
    Format("properties", "Java properties", (".properties",), read_properties, "latin-1", spelled_in_java),
    Format("strings", "Apple strings", (".strings",), read_strings),
    Format("xcstrings", "Apple string catalog", (".xcstrings",), read_xcstrings, bilingual=True),
    Format("srt", "SubRip", (".srt",), read_srt),
    Format("vtt", "WebVTT", (".vtt",), read_vtt),
    Format("docx", "Word", (".docx", ".docm", ".dotx"), read_docx, spell=spelled, archive=True),
    Format("pptx", "PowerPoint", (".pptx", ".pptm", ".ppsx", ".potx"), read_pptx, spell=spelled, archive=True),
    Format("xlsx", "Excel", (".xlsx", ".xlsm", ".xltx"), read_xlsx, spell=spelled, archive=True),
    Format(
        "odf",
        "OpenDocument",
        (".odt", ".ods", ".odp", ".odg", ".ott", ".ots", ".otp"),
        read_odf,
        spell=spelled,
        archive=True,
    ),
    Format("csv", "CSV", (".csv",), read_csv, bilingual=True),
    Format("tsv", "TSV", (".tsv", ".tab"), read_tsv, bilingual=True),
    Format("text", "plain text", (".txt",), read_lines),
)
# suffixes that other formats have too: what a file of ours contains near its start (TypeScript has `.ts`)
_ROOTS = {".ts": rb"<TS[\s>]", ".xml": rb"<resources[\s>]"}
SAMPLE = 1 << 16  # bytes of a file by which its format is told
BY_NAME = {each.name: each for each in FORMATS}


def named(name: str) -> Format:
    """The format of a name, or of a suffix: `markdown`, `md`."""
    found = BY_NAME.get(name) or next((each for each in FORMATS if f".{name}" in each.suffixes), None)
    if found is None:
        raise UsageError(f"there is no format {name!r}: use one of {', '.join(BY_NAME)}")
    return found


def format_of(name: str, data: bytes, asked: str | None = None) -> Format:
    """The format that was asked for, or that a file has by its name and content."""
    if asked is not None:
        return named(asked)
    found = known(PurePath(name), data)
    if found is None:
        raise UsageError(f"{name}: unknown format; name it with --format ({', '.join(BY_NAME)})")
    return found


def known(path: PurePath, data: bytes) -> Format | None:
    """The format of a file by its suffix and, where others share that, by its content; None if there is none."""
    suffix = path.suffix.lower() if not path.name.startswith("~$") else ""  # Word's mark of an open document
    found = next((each for each in FORMATS if suffix in each.suffixes), None)
    root = _ROOTS.get(suffix)
    if found is None or root is None:
        return found
    start = data[:SAMPLE].replace(b"\0", b"")  # UTF-16 too
    return found if re.search(root, start) else None
