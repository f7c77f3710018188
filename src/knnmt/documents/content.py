"""The content of a file as text, and back to the same bytes: encodings, byte order marks, line ends."""

import bisect
import codecs
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from knnmt import encoding
from knnmt.documents.patches import applied
from knnmt.documents.unit import Entry
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_SAMPLE = 4096  # bytes in which a file declares its encoding
_XML = re.compile(rb"""^\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_CATALOG = re.compile(
    rb'^(?:msgstr[ \t]+)?"[^"\n]*?Content-Type:[^"\n]*?charset=([A-Za-z0-9._-]+)', re.MULTILINE | re.IGNORECASE
)
_PAGE = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._-]+)""", re.IGNORECASE)


@dataclass(frozen=True)
class Content:
    """A file as text. `name` is what errors call it; `mark` is its byte order mark, which is not in the text."""

    text: str
    name: str
    encoding: str = "utf-8"
    mark: bytes = b""
    languages: Languages | None = None
    columns: tuple[str, ...] = ()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def line(self, at: int) -> int:
        """The number of the line, from 1, of a position."""
        return bisect.bisect_right(self._starts, at)

    def error(self, at: int, reason: str) -> DataError:
        """The error for something wrong at a position."""
        return DataError(f"{self.name}:{self.line(at)}: {reason}")

    @cached_property
    def newline(self) -> str:
        """The line end that the file uses first."""
        found = re.search("\r?\n", self.text)
        return found[0] if found else "\n"

    @property
    def target(self) -> str:
        """The tag of the target language, "" if nobody named it."""
        return self.languages.target if self.languages is not None else ""

    @property
    def source(self) -> str:
        """The tag of the source language, "" if nobody named it."""
        return self.languages.source if self.languages is not None else ""

    def require(self, *, source: str = "", target: str = "") -> None:
        """Refuse a file that declares other languages than those of the translation."""
        for asked, found, side in ((self.source, source, "from"), (self.target, target, "into")):
            if asked and found and not closeness(asked, found):
                raise UsageError(
                    f"{self.name}: the file is to be translated {side} {found!r}, but the translation is {side} "
                    f"{asked!r}; choose another model, or correct the language in the file"
                )

    def edited(self, entries: Iterable[Entry], spell: Callable[[str], str] | None) -> bytes:
        """The bytes of the file with these entries written; `spell` writes a character that the encoding lacks."""
        patches = (patch for entry in entries for patch in entry.patches())
        return self.mark + b"".join(
            self._encoded(piece, spell) if new else piece.encode(self.encoding)
            for piece, new in applied(self.text, patches)
        )

    def _encoded(self, piece: str, spell: Callable[[str], str] | None) -> bytes:
        try:
            return piece.encode(self.encoding)
        except UnicodeEncodeError as error:
            if spell is None or "\ud800" <= piece[error.start] <= "\udfff":
                raise DataError(
                    f"{self.name}: {self.encoding} cannot encode {piece[error.start]!r} of a translation; "
                    "convert the file to UTF-8 first"
                ) from None
        return b"".join(_character(character, self.encoding, spell) for character in piece)


def _character(character: str, name: str, spell: Callable[[str], str]) -> bytes:
    try:
        return character.encode(name)
    except UnicodeEncodeError:
        return spell(character).encode(name)


def decoded(data: bytes, name: str, declared: str | None) -> Content:
    """The text of a file: by its byte order mark, by the encoding that it declares, or as UTF-8.

    `declared` says where a format declares its encoding: `xml`, `catalog` (gettext) or `page` (HTML); `latin-1` is
    the encoding of a format for what is no UTF-8. A file that would not come out as it went in is refused.
    """
    mark, chosen = next(((mark, chosen) for mark, chosen in _MARKS if data.startswith(mark)), (b"", ""))
    body = data[len(mark) :]
    if not chosen:
        chosen = _declared(body, declared) or _unmarked(body)
    try:
        codecs.lookup(chosen).name.encode("ascii")
        text = body.decode(chosen)
    except LookupError:
        raise DataError(f"{name}:1: unknown encoding {chosen!r}; correct the declaration in the file") from None
    except (UnicodeDecodeError, ValueError) as error:
        if declared == "latin-1" and not mark:
            return Content(body.decode("latin-1"), name, "latin-1")
        raise _undecodable(body, name, chosen, error) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{name}:{line}: the line contains a NUL character: this is a binary file or corrupt text")
    try:
        same = text.encode(chosen) == body
    except UnicodeEncodeError:
        same = False
    if not same:
        raise DataError(
            f"{name}: text in {chosen} that cannot be written back byte for byte; convert it to UTF-8 first"
        )
    return Content(text, name, chosen, mark)


def _declared(body: bytes, where: str | None) -> str | None:
    pattern = {"xml": _XML, "catalog": _CATALOG, "page": _PAGE}.get(where or "")
    found = pattern.search(body if where == "catalog" else body[:_SAMPLE]) if pattern is not None else None
    if found is None:
        return None
    chosen = found[1].decode().lower()
    return None if chosen in ("charset", "utf-16", "utf16") else chosen  # a template; or what only a mark can tell


def _unmarked(body: bytes) -> str:
    """UTF-8, or UTF-16 without a mark by the zeros of its first characters."""
    start = body[:2]
    if len(start) == 2 and len(body) % 2 == 0 and (start[0] == 0) != (start[1] == 0):
        return "utf-16-be" if start[0] == 0 else "utf-16-le"
    return "utf-8"


def _undecodable(body: bytes, name: str, chosen: str, error: ValueError) -> DataError:
    at = error.start if isinstance(error, UnicodeDecodeError) else 0
    line = body.count(b"\n", 0, at) + 1
    place = f"{name}:{line}: byte {at + 1} of the file is not valid {chosen.upper()}"
    if chosen != "utf-8":
        return DataError(f"{place}; correct the declared encoding, or convert the file")
    start = body.rfind(b"\n", 0, at) + 1
    probable = encoding.probable(body[start : body.find(b"\n", at) + 1 or len(body)])
    return DataError(f"{place}; " + (f"the text is probably {probable}: " if probable else "") + "convert it to UTF-8")
