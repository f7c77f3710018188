"""Plain text: each line with letters is a unit."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.unit import Entry, Unit, Value
from knnmt.text.inline import Inline
from knnmt.text.words import is_text

_LINE = re.compile(r"[^\r\n]+")


def read_lines(content: Content) -> Iterator[Entry]:
    """The lines, without the white space around them."""
    for found in _LINE.finditer(content.text):
        text = found[0].strip()
        if is_text(text):
            start = found.start() + found[0].index(text)
            unit = Unit(Inline.plain(text), line=content.line(start))
            yield Value(unit, start, start + len(text), lambda target: " ".join(target.text.split("\n")))
