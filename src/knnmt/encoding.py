"""Checks that files are UTF-8, with hints on the probable encoding and how to convert it.

A few corrupt lines of a large file can be skipped. But a file in which most non-ASCII lines are not UTF-8 is in another
encoding, and is refused as a whole: skipping lines would bias what is read.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from knnmt.errors import DataError

SAMPLE = 1 << 18  # bytes of a file that are checked before it is read
CORRUPT = 0.01  # fraction of lines below which invalid ones are corruption, not another encoding
_FOREIGN = 0.3  # fraction of non-ASCII bytes above which the script is not Latin
_HIGH = bytes(range(128, 256))
# UTF-32's little-endian mark starts with UTF-16's
_MARKS = ((codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
          (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))  # fmt: skip


def why_no_text(line: bytes) -> str | None:
    """Why a line is not UTF-8 text, or None. NULs are a sign of UTF-16."""
    if b"\0" in line:
        return f"byte {line.index(0) + 1} of the line is NUL"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of the line is not UTF-8"
    return None


@dataclass
class Census:
    """Line counts of a file: all, invalid ones, and valid ones with non-ASCII characters."""

    lines: int = 0
    invalid: int = 0
    beyond_ascii: int = 0
    first: tuple[int, str, bytes] | None = None  # the first invalid line: number, reason, bytes

    def take(self, line: bytes) -> str | None:
        """Count a line, and return why it is not UTF-8 text, or None."""
        self.lines += 1
        if line.isascii() and b"\0" not in line:
            return None
        reason = why_no_text(line)
        if reason is None:
            self.beyond_ascii += 1
            return None
        self.invalid += 1
        self.first = self.first or (self.lines, reason, line)
        return reason

    def require_utf8(self, path: Path) -> None:
        """Refuse a file that is in another encoding, judging by the lines counted."""
        if self.first is not None and self.invalid > self.beyond_ascii and self.invalid >= CORRUPT * self.lines:
            number, reason, line = self.first
            raise DataError(f"{path}:{number}: {reason}; {refusal(line, path)}")


def require_utf8(sample: bytes, path: Path) -> None:
    """Refuse a file that is not UTF-8, given its start; a sample of `SAMPLE` bytes may end in the middle of a line."""
    if (encoding := marked(sample)) is not None:
        raise DataError(f"{path}: it is {encoding}, by its byte order mark; {convert(encoding, path)}")
    lines = sample.split(b"\n")
    require_lines(lines[:-1] if len(sample) >= SAMPLE and len(lines) > 1 else lines, path)


def require_lines(lines: Iterable[bytes], path: Path) -> None:
    """Refuse a file that is not UTF-8, given its lines."""
    census = Census()
    for line in lines:
        census.take(line)
    census.require_utf8(path)


def marked(sample: bytes) -> str | None:
    """The encoding by the byte order mark at the start of a file, unless it is UTF-8."""
    return next((name for mark, name in _MARKS if sample.startswith(mark)), None)


def probable(sample: bytes) -> str | None:
    """The probable encoding of bytes that are not UTF-8, by iconv's name."""
    if sample.count(0):
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if max(even, odd) > len(sample) / 8 and max(even, odd) > 4 * min(even, odd):
            return "UTF-16LE" if odd > even else "UTF-16BE"
        return None  # a binary file, or UTF-16 of a non-Latin script
    high = len(sample) - len(sample.translate(None, _HIGH))
    return "WINDOWS-1252" if high < _FOREIGN * len(sample) else None


def refusal(line: bytes, path: Path | None) -> str:
    """What to do about a line that is not UTF-8: the probable encoding, and how to convert it."""
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
