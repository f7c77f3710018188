"""What is common to files of keys and messages: which values are texts, and which are left whole."""

import re
from collections.abc import Callable

from knnmt.documents.content import Content
from knnmt.documents.unit import Entry, Left, Unit, Value
from knnmt.text.icu import pieces
from knnmt.text.inline import Inline
from knnmt.text.words import is_text

ICU = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal)\s*,")


def message(content: Content, key: str, value: str, start: int, end: int, write: Callable[[str], str]) -> Entry | None:
    """The entry of a value at `start` to `end`, which `write` writes; None where it has no text."""
    if not is_text(value):
        return None
    if ICU.search(value) and pieces(value) is None:
        return Left(content.line(start), "ICU message")
    unit = Unit(Inline.plain(value), line=content.line(start), key=key)
    return Value(unit, start, end, lambda target: write(target.text))
