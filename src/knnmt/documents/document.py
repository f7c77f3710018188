"""A document: a file as entries with units, and the same file with its translations."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from knnmt.documents.content import Content
from knnmt.documents.formats import Format, format_of
from knnmt.documents.unit import Entry, Left, Unit
from knnmt.errors import DataError, UsageError
from knnmt.files import write_whole
from knnmt.languages import Languages

_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which no encoding has


class Document:
    """A file that is translated. Units are set one by one; `to_bytes` is the file with what was set.

    >>> document = open_document("messages.po", languages=Languages("en", "de"))
    >>> for unit in document.units:
    ...     unit.set(translate(unit.source), state=State.FUZZY)
    >>> document.write("de.po")
    """

    def __init__(self, format: Format, content: Content, entries: Iterable[Entry]) -> None:
        self.format, self.content, self.entries = format, content, list(entries)

    @property
    def units(self) -> Iterator[Unit]:
        """The texts to translate, in the order of the file."""
        return (unit for entry in self.entries for unit in entry.units)

    @property
    def left(self) -> list[Left]:
        """The texts that are left as they are."""
        return [entry for entry in self.entries if isinstance(entry, Left)]

    def to_bytes(self) -> bytes:
        """The file with its translations; without any, it is the file as it was."""
        return self.content.edited((entry for entry in self.entries if entry.changed), self.format.spell)

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_whole(Path(path), self.to_bytes())


def open_document(
    file: str | Path | bytes,
    format: str | None = None,
    *,
    languages: Languages | None = None,
    columns: tuple[str, ...] = (),
    name: str = "",
) -> Document:
    """Read a document from a path or from bytes, which errors call `name`.

    The format is that of the name and the content, unless it is given. Formats with room for two languages, or with
    plural forms, want to know the `languages`; `columns` names those of a table.
    """
    if isinstance(file, bytes):
        data, name = file, name or "document"
    else:
        name = name or str(file)
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    chosen = format_of(name, data, format)
    content = replace(chosen.decoded(data, name), languages=languages, columns=columns)
    try:
        document = Document(chosen, content, chosen.read(content))
    except RecursionError:
        raise DataError(f"{name}: nested too deeply; this is no {chosen.label} file of a translator") from None
    for unit in document.units:
        if _SURROGATE.search(unit.source.text):
            raise DataError(f"{name}:{unit.line}: lone surrogate in an escape sequence; correct the text")
    return document
