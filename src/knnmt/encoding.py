"""Whether bytes are UTF-8 text, and what to tell whoever gives others: the probable encoding, and how to convert it.

Of a large file a damaged line or two may be left out. A file most of whose lines beyond ASCII are not UTF-8 is written
in another encoding, and what could be read of it would be a selection: it is refused as a whole.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from knnmt.errors import DataError

SAMPLE = 1 << 18  # bytes of a file that are looked at before any of it is used
DAMAGED = 0.01  # of all lines: fewer are damage, whatever the others are
_FOREIGN = 0.3  # of all bytes beyond ASCII: more are an alphabet of its own, not accents and umlauts
_HIGH = bytes(range(128, 256))
# UTF-32's little-endian mark begins with UTF-16's
_MARKS = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
          (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))  # fmt: skip


def why_no_text(line: bytes) -> str | None:
    """What keeps a line from being UTF-8 text, or None. NUL is what UTF-16 has beside each letter."""
    if b"\0" in line:
        return f"byte {line.index(0) + 1} of the line is NUL"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of the line is not UTF-8"
    return None


@dataclass
class Census:
    """The lines of a file by what they are: all of them, those that are no text, those of text beyond ASCII."""

    lines: int = 0
    broken: int = 0
    beyond_ascii: int = 0
    first: tuple[int, str, bytes] | None = None  # number of the first broken line, what is wrong with it, itself

    def take(self, line: bytes) -> str | None:
        """Count a line, and give what keeps it from being text."""
        self.lines += 1
        if line.isascii() and b"\0" not in line:
            return None
        reason = why_no_text(line)
        if reason is None:
            self.beyond_ascii += 1
            return None
        self.broken += 1
        self.first = self.first or (self.lines, reason, line)
        return reason

    def require_utf8(self, path: Path) -> None:
        """Refuse a file that is written in another encoding, going by the lines that were counted."""
        if self.first is not None and self.broken > self.beyond_ascii and self.broken >= DAMAGED * self.lines:
            number, reason, line = self.first
            raise DataError(f"{path}:{number}: {reason}; {refusal(line, path)}")


def require_utf8(sample: bytes, path: Path) -> None:
    """Refuse a file that begins like this and is not written in UTF-8; cut at `SAMPLE` bytes, its last line is half."""
    if (encoding := marked(sample)) is not None:
        raise DataError(f"{path}: it is {encoding}, by its byte order mark; {convert(encoding, path)}")
    lines = sample.split(b"\n")
    require_lines(lines[:-1] if len(sample) >= SAMPLE and len(lines) > 1 else lines, path)


def require_lines(lines: Iterable[bytes], path: Path) -> None:
    """Refuse lines of a file that is not written in UTF-8."""
    census = Census()
    for line in lines:
        census.take(line)
    census.require_utf8(path)


def marked(sample: bytes) -> str | None:
    """The encoding that a byte order mark at the beginning of a file tells, if it is not UTF-8."""
    return next((name for mark, name in _MARKS if sample.startswith(mark)), None)


def probable(sample: bytes) -> str | None:
    """The encoding, by iconv's name, that bytes which are not UTF-8 are probably written in."""
    if sample.count(0):
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if max(even, odd) > len(sample) / 8 and max(even, odd) > 4 * min(even, odd):
            return "UTF-16LE" if odd > even else "UTF-16BE"
        return None  # a binary file, or UTF-16 of a script whose characters fill both bytes
    high = len(sample) - len(sample.translate(None, _HIGH))
    return "WINDOWS-1252" if high < _FOREIGN * len(sample) else None


def refusal(line: bytes, path: Path | None) -> str:
    """What to say of a text one of whose lines is not UTF-8: its probable encoding, and the way out."""
    encoding = probable(line)
    told = f"the text is probably {encoding}, " if encoding else ""
    return told + convert(encoding, path)


def convert(encoding: str | None, path: Path | None) -> str:
    """The command that converts a file, or standard input, to UTF-8."""
    name = encoding or "ENCODING"
    if path is None:
        return f"convert it first: iconv -f {name} -t UTF-8"
    new = path.with_name(f"utf8-{path.name}")
    if path.suffix.lower() == ".gz":
        return f"convert it first: zcat {path} | iconv -f {name} -t UTF-8 | gzip > {new}"
    return f"convert it first: iconv -f {name} -t UTF-8 {path} > {new}"
