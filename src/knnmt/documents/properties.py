"""Java's `.properties`: keys and values with escapes and continued lines, in UTF-8 or Latin-1."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.messages import message
from knnmt.documents.unit import Entry

# a logical line: what a backslash at its end continues belongs to it
_LINE = re.compile(r"[ \t\f]*+(?:[#!][^\r\n]*|((?:[^\\\r\n]++|\\(?:\r\n|[\s\S]|\Z))++))?(?:\r\n|\r|\n|\Z)")
_KEY = re.compile(r"((?:[^\\:= \t\f]++|\\(?:\r\n|[\s\S]))*+)[ \t\f]*[:=]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\r|\n)[ \t\f]*|([\s\S]))")
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ARGUMENT = re.compile(r"\{\d")  # MessageFormat: apostrophes are doubled


def read_properties(content: Content) -> Iterator[Entry]:
    """The values with letters."""
    text, at = content.text, 0
    ascii_only = text.isascii() and "\\u" in text
    while at < len(text):
        found = _LINE.match(text, at)
        assert found is not None, "every line is one"
        at = found.end()
        if found[1] is None:
            continue
        key = _KEY.match(found[1])
        assert key is not None
        start, end = found.start(1) + key.end(), found.end(1)
        raw = text[start:end]
        if bad := re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", raw):
            raise content.error(start + bad.start(), r"\u is not followed by four hexadecimal digits")
        formatted = bool(_ARGUMENT.search(raw))
        value = unescaped(raw)
        value = value.replace("''", "'") if formatted else value

        def write(new: str, formatted: bool = formatted) -> str:
            new = escaped(new.replace("'", "''") if formatted else new)
            return "".join(spelled(letter) for letter in new) if ascii_only else new

        entry = message(content, unescaped(key[1]), value, start, end, write)
        if entry is not None:
            yield entry


def unescaped(raw: str) -> str:
    """A value without escapes; surrogate pairs become characters, and a lone one stays, to be refused."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _UNESCAPED.get(found[2], found[2]) if found[2] else ""

    text = _ESCAPE.sub(one, raw)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def escaped(text: str) -> str:
    """A value as it is written on one line."""
    text = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r").replace("\f", "\\f")
    )
    return "\\" + text if text.startswith(" ") else text


def spelled(character: str) -> str:
    """A character in ASCII, `\\u00e4`; beyond the first 65,536 as a surrogate pair."""
    if character.isascii():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
