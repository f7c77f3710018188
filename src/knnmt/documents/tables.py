"""CSV and TSV with named columns: one of the source, and one that its translations are written to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from knnmt.documents.content import Content
from knnmt.documents.patches import Patch
from knnmt.documents.unit import Entry, State, Unit
from knnmt.errors import UsageError
from knnmt.languages import closeness
from knnmt.text.inline import Inline
from knnmt.text.words import is_text

_SEPARATOR = re.compile(r'"?sep=([^"\r\n])"?\r?\n')  # a line above the header


@dataclass(slots=True)
class _Cell:
    start: int
    end: int
    raw: str

    @property
    def value(self) -> str:
        """The text of the cell, without quotes."""
        return self.raw[1:-1].replace('""', '"') if self.raw.startswith('"') else self.raw


def read_csv(content: Content) -> Iterator[Entry]:
    """The rows below the header, with the separator that Excel's `sep=` names, or that the header has most of."""
    if (named := _SEPARATOR.match(content.text)) is not None:
        return _read(content, named[1], named.end())
    head = content.text.partition("\n")[0]
    return _read(content, max((";", ",", "\t"), key=head.count))


def read_tsv(content: Content) -> Iterator[Entry]:
    """The rows below the header; cells are separated by tabs."""
    return _read(content, "\t")


def _read(content: Content, separator: str, start: int = 0) -> Iterator[Entry]:
    rows = _rows(content, separator, start)
    names = [cell.value.strip() for cell in next(rows, [])]
    source, target = _columns(content, names)
    for row in rows:
        if len(row) == 1 and not row[0].raw:
            continue  # an empty line
        if len(row) != len(names):
            place = row[0].start
            raise content.error(place, f"{len(row)} cells, but the header has {len(names)}")
        if is_text(row[source].value):
            yield _Row(content, row[source], row[target], separator, names[source] if source == target else "")


def _rows(content: Content, separator: str, at: int) -> Iterator[list[_Cell]]:
    text = content.text
    plain = re.compile(rf"[^{re.escape(separator)}\r\n]*")
    quoted = re.compile(r'"(?:[^"]|"")*+"')
    row: list[_Cell] = []
    while at < len(text):
        pattern = quoted if text[at] == '"' and separator != "\t" else plain
        found = pattern.match(text, at)
        if found is None:
            raise content.error(at, "a quoted cell is not closed")
        row.append(_Cell(at, found.end(), found[0]))
        at = found.end()
        if text.startswith(separator, at):
            at += len(separator)
            if at == len(text):
                row.append(_Cell(at, at, ""))
            continue
        if at < len(text) and text[at] not in "\r\n":
            raise content.error(at, "text behind the closing quote of a cell")
        at += 2 if text.startswith("\r\n", at) else 1
        yield row
        row = []
    if row:
        yield row


def _columns(content: Content, names: list[str]) -> tuple[int, int]:
    """The numbers of the columns: those that were asked for, else `source` and `target`, or the languages."""
    if content.columns:
        for name in content.columns:
            if name not in names:
                raise UsageError(f"{content.name}: no column {name!r}; it has {', '.join(map(repr, names)) or 'none'}")
        return names.index(content.columns[0]), names.index(content.columns[-1])
    lower = [name.lower() for name in names]
    if {"source", "target"} <= set(lower):
        return lower.index("source"), lower.index("target")
    tags = [
        next((number for number, name in enumerate(names) if asked and closeness(asked, name)), None)
        for asked in (content.source, content.target)
    ]
    if tags[0] is None or tags[1] is None:
        raise UsageError(
            f"{content.name}: which columns are source and target? Name them: --columns SOURCE,TARGET; "
            f"it has {', '.join(map(repr, names)) or 'none'}"
        )
    return tags[0], tags[1]


class _Row(Entry):
    """A row: the cell of the source, and that of the target, which may be the same."""

    def __init__(self, content: Content, source: _Cell, target: _Cell, separator: str, same: str) -> None:
        self.target, self.separator = target, separator
        self.quotes = source.raw.startswith('"') and separator != "\t"
        old = Inline.plain(target.value) if target.value.strip() and not same else None
        state = State.UNTRANSLATED if old is None else State.TRANSLATED
        unit = Unit(Inline.plain(source.value), line=content.line(source.start), key=same, target=old, state=state)
        self.units = (unit,)

    def patches(self) -> Iterator[Patch]:
        """The cell of the target."""
        target = self.units[0].target
        assert target is not None
        new = target.text
        if self.separator == "\t":
            new = " ".join(re.split(r"[\t\r\n]", new))
        elif self.quotes or re.search(rf'["\r\n{self.separator}]', new):
            new = '"' + new.replace('"', '""') + '"'
        yield Patch(self.target.start, self.target.end, new)
