"""Reading glossaries: TSV and CSV, with or without a header, and TBX 2 and 3."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from knnmt.corpus.files import lines, opened, require_readable, without_gz
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness
from knnmt.text.glossary_forms import part_of_speech
from knnmt.text.terms import Term

if TYPE_CHECKING:
    from lxml.etree import _Element

Bad = Callable[[DataError], None]
COLUMNS = {
    "source": "source", "source term": "source", "term": "source",
    "target": "target", "target term": "target", "translation": "target",
    "forbidden": "forbidden", "case": "case", "case sensitive": "case", "case_sensitive": "case",
    "pos": "pos", "part of speech": "pos", "note": "", "comment": "", "description": "",
}  # fmt: skip
YES, NO = frozenset("1 yes y true x ja".split()), frozenset(["", *"0 no n false nein".split()])
BETWEEN = "|"  # several targets, or forbidden words
DEPRECATED = ("deprecated", "superseded", "forbidden", "obsolete", "notrecommended")
TAG = re.compile("[a-z]{2}(?:[-_][A-Z]{2})?|[A-Z]{2}")  # a language, as a header names it
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_terms(path: Path, languages: Languages | None, bad: Bad) -> tuple[list[Term], Languages | None]:
    """The terms of a file, and its languages, where it names them; `bad` gets what is wrong with an entry."""
    require_readable(path)
    suffix = without_gz(path).suffix.lower()
    with opened(path) as file:
        start = file.read(1024).lstrip(b"\xef\xbb\xbf \r\n\t")
    if suffix in (".tbx", ".xml") or start.startswith(b"<"):
        return _read_tbx(path, languages, bad)
    if suffix not in (".tsv", ".csv", ".txt", ".tab"):
        raise UsageError(f"{path}: a glossary is a TSV, CSV or TBX file; name it so")
    return _read_table(path, suffix, languages, bad)


# ---------------------------------------------------------------------------------------------------- tables


def _read_table(path: Path, suffix: str, languages: Languages | None, bad: Bad) -> tuple[list[Term], Languages | None]:
    """Rows of source and target term, and what the header names besides."""
    terms: list[Term] = []
    names: list[str] | None = None
    for number, row in _rows(path, suffix, bad):
        if names is None:
            names, languages, is_header = _header(path, row, languages)
            if is_header:
                continue
        try:
            terms.append(_term(row, names, number, f"{path}:{number}"))
        except DataError as error:
            bad(error)
    return terms, languages


def _rows(path: Path, suffix: str, bad: Bad) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty and no comments, with the lines they begin in."""

    def texts() -> Iterator[str]:
        for line in lines(path):
            if isinstance(line, DataError):
                bad(line)
            yield "\n" if isinstance(line, DataError) else line + "\n"

    found = texts()
    first = next(found, "")
    comma = suffix == ".csv"
    separator = max(",;\t", key=first.count) if comma else "\t"
    every = iter([first]) if not first else (text for some in ([first], found) for text in some)
    reader = csv.reader(every, delimiter=separator, quoting=csv.QUOTE_MINIMAL if comma else csv.QUOTE_NONE)
    number = 1
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{number}: invalid CSV ({error}); export the file again") from None


def _header(path: Path, row: Sequence[str], languages: Languages | None) -> tuple[list[str], Languages | None, bool]:
    """The names of the columns, the languages, and whether this row is a header, which names them."""
    known = [COLUMNS.get(cell.lower()) for cell in row]
    if "source" in known and "target" in known:
        return [name or "" for name in known], languages, True
    tags = [number for number, cell in enumerate(row) if TAG.fullmatch(cell)]
    if len(tags) < 2 or any(name is None and number not in tags for number, name in enumerate(known)):
        return ["source", "target"], languages, False
    pair = Languages(row[tags[0]], row[tags[1]]) if languages is None else languages
    sides = [next((at for at in tags if closeness(asked, row[at])), -1) for asked in (pair.source, pair.target)]
    if -1 in sides:
        raise UsageError(f"{path}: it has {', '.join(row[at] for at in tags)}, not {pair}; choose two of its languages")
    names = [name or "" for name in known]
    names[sides[0]], names[sides[1]] = "source", "target"
    return names, pair, True


def _term(row: Sequence[str], names: Sequence[str], line: int, place: str) -> Term:
    if len(row) > len(names) and any(row[len(names) :]):
        raise DataError(
            f"{place}: {len(row)} columns, but {len(names)} expected; "
            f"name them in the first line: source, target, pos, case, forbidden, note"
        )
    cells = dict(zip(names, row, strict=False))
    targets, forbidden = _several(cells.get("target", "")), _several(cells.get("forbidden", ""))
    source = " ".join(cells.get("source", "").split())
    if not source.strip("* ") or not targets:
        side = "target" if source.strip("* ") else "source"
        raise DataError(f"{place}: the {side} term is empty; fill it in or remove the line")
    case = cells.get("case", "").lower()
    if case not in YES | NO:
        raise DataError(f"{place}: case is {case!r}; write yes or no")
    return Term(source, targets[0], targets[1:], case in YES, part_of_speech(cells.get("pos", "")), forbidden, line)


def _several(cell: str) -> tuple[str, ...]:
    """The terms of a cell, separated by `|`."""
    return tuple(text for part in cell.split(BETWEEN) if (text := " ".join(part.split())))


# ------------------------------------------------------------------------------------------------------- TBX


def _read_tbx(path: Path, languages: Languages | None, bad: Bad) -> tuple[list[Term], Languages]:
    """Concepts with terms in both languages. Deprecated terms of the target language are forbidden."""
    from lxml import etree

    with opened(path) as file:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            root = etree.parse(file, parser).getroot()
        except etree.XMLSyntaxError as error:
            raise DataError(f"{path}:{error.lineno}: invalid XML ({error.msg}); export the file again") from None
    concepts = list(root.iter("{*}termEntry", "{*}conceptEntry"))
    sections = [[(_language(each), each) for each in one.iter("{*}langSet", "{*}langSec")] for one in concepts]
    tags = sorted({tag for some in sections for tag, _ in some if tag})
    if languages is None:
        if len(tags) != 2:
            raise UsageError(f"{path}: which languages? It has {', '.join(tags) or 'none'}; name two: --langs de-en")
        languages = Languages(*dict.fromkeys(tag for some in sections for tag, _ in some if tag))
    terms: list[Term] = []
    for concept, some in zip(concepts, sections, strict=True):
        sources, targets = (_terms_of(some, asked) for asked in (languages.source, languages.target))
        right = [text for text, _, deprecated in targets if not deprecated]
        forbidden = tuple(text for text, _, deprecated in targets if deprecated)
        line = int(concept.sourceline or 0)
        if not sources or not right:
            if sources or targets:
                side = languages.target if sources else languages.source
                bad(DataError(f"{path}:{line}: the concept has no term in {side}; add one or remove the concept"))
            continue
        terms += (Term(text, right[0], tuple(right[1:]), False, pos, forbidden, line) for text, pos, _ in sources)
    if concepts and not terms:
        raise UsageError(f"{path}: no concept has terms in both languages of {languages}; it has {', '.join(tags)}")
    return terms, languages


def _language(section: "_Element") -> str:
    return section.get(_XML_LANG) or section.get("lang") or ""


def _terms_of(sections: list[tuple[str, "_Element"]], asked: str) -> list[tuple[str, str, bool]]:
    """The terms in a language, preferred ones first: text, part of speech, and whether it is deprecated."""
    found = []
    for tag, section in sections:
        if not tag or not closeness(asked, tag):
            continue
        for group in section.iter("{*}tig", "{*}ntig", "{*}termSec"):
            term = next(group.iter("{*}term"), None)
            text = " ".join("".join(str(part) for part in term.itertext()).split()) if term is not None else ""
            # <termNote type="partOfSpeech">, or <min:partOfSpeech> in the DCT style of TBX 3
            notes = {
                note.get("type") or str(note.tag).rpartition("}")[2]: (note.text or "").strip()
                for note in group.iter("{*}termNote", "{*}partOfSpeech", "{*}administrativeStatus")
            }
            status = notes.get("administrativeStatus", "").lower()
            rank = 0 if status.startswith("preferred") else 1
            if text:
                pos = part_of_speech(notes.get("partOfSpeech", ""))
                found.append((rank, (text, pos, status.startswith(DEPRECATED))))
    return [each for _, each in sorted(found, key=lambda one: one[0])]
