"""What is common to files of keys and messages: which values are texts, and which are left whole."""

import re
from collections.abc import Callable

from knnmt.documents.content import Content
from knnmt.documents.unit import Entry, Left, Unit, Value
from knnmt.text.icu import pieces
from knnmt.text.inline import Inline

ICU = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal)\s*,")
_LETTER = re.compile(r"[^\W\d_]")
_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*://|mailto:|www\.)\S*\s*", re.IGNORECASE)


def is_text(value: str) -> bool:
    """Whether there is anything to translate: letters, and not only an address."""
    return bool(_LETTER.search(value)) and not _ADDRESS.fullmatch(value)


def message(content: Content, key: str, value: str, start: int, end: int, write: Callable[[str], str]) -> Entry | None:
    """The entry of a value at `start` to `end`, which `write` writes; None where it has no text."""
    if not is_text(value):
        return None
    if ICU.search(value) and pieces(value) is None:
        return Left(content.line(start), "ICU message")
    unit = Unit(Inline.plain(value), line=content.line(start), key=key)
    return Value(unit, start, end, lambda target: write(target.text))
