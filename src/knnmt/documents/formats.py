"""The formats of documents: their names, suffixes and readers, and which of them a file has."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from knnmt.documents import markup
from knnmt.documents.content import Content, decoded
from knnmt.documents.po import read_po
from knnmt.documents.unit import Entry
from knnmt.errors import UsageError


@dataclass(frozen=True)
class Format:
    """A format of documents. `spell` writes a character that the encoding of a file does not have."""

    name: str  # as --format takes it
    label: str  # as people call it
    suffixes: tuple[str, ...]
    read: Callable[[Content], Iterable[Entry]]
    declares: str | None = None  # where a file names its encoding, as `content.decoded` knows it
    spell: Callable[[str], str] | None = None

    def decoded(self, data: bytes, name: str) -> Content:
        """The bytes of a file as text."""
        return decoded(data, name, self.declares)


_XML = {"declares": "xml", "spell": markup.spelled}
FORMATS = (
    Format("po", "gettext PO", (".po", ".pot"), read_po, "catalog"),
)
BY_NAME = {each.name: each for each in FORMATS}


def format_of(name: str, data: bytes, asked: str | None = None) -> Format:
    """The format that was asked for, or that a file has by its name and content."""
    if asked is not None:
        if asked not in BY_NAME:
            raise UsageError(f"there is no format {asked!r}: use one of {', '.join(BY_NAME)}")
        return BY_NAME[asked]
    found = known(PurePath(name), data)
    if found is None:
        raise UsageError(f"{name}: unknown format; name it with --format ({', '.join(BY_NAME)})")
    return found


def known(path: PurePath, data: bytes) -> Format | None:
    """The format of a file by its suffix and, where several share one, by its content; None if there is none."""
    suffix = path.suffix.lower()
    return next((each for each in FORMATS if suffix in each.suffixes), None)
