"""Apple's `.strings`: `"key" = "value";` with comments, in UTF-8 or UTF-16."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.messages import message
from knnmt.documents.unit import Entry

_TOKEN = re.compile(
    r'(?P<space>\s+|/\*.*?\*/|//[^\r\n]*)|"(?P<string>(?:[^"\\]++|\\.)*+)"|(?P<word>[A-Za-z0-9_.$/:-]+)|(?P<mark>[=;])',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:[Uu]([0-9a-fA-F]{4})|([\s\S]))")
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_EXPECTED = ("a key", "=", "a value", ";")


def read_strings(content: Content) -> Iterator[Entry]:
    """The values with letters."""
    text, at, step, key, value = content.text, 0, 0, "", None
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise content.error(at, f"expected {_EXPECTED[step]}, not {text[at : at + 20]!r}: a string is not closed?")
        at = found.end()
        if found["space"] is not None:
            continue
        mark = found["mark"]
        if mark != (_EXPECTED[step] if step in (1, 3) else None):
            if mark == ";" and step == 1:  # `"key";` stands for itself
                step = 0
                continue
            raise content.error(found.start(), f"expected {_EXPECTED[step]}, not {found[0]!r:.30}")
        if step == 0:
            key = _unescaped(found["string"] or found["word"])
        elif step == 2:
            value = found
        elif step == 3:
            assert value is not None
            start, end = value.span("string")
            if start >= 0:
                entry = message(content, key, _unescaped(value["string"]), start, end, _escaped)
                if entry is not None:
                    yield entry
        step = (step + 1) % 4
    if step:
        raise content.error(len(text), f"the file ends where {_EXPECTED[step]} is expected: it is cut off")


def _unescaped(raw: str) -> str:
    text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _UNESCAPED.get(found[2], found[2]), raw)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
