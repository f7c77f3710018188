"""Opening files: plain or gzipped, checked before any work, streamed, with errors that name the place."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from knnmt.errors import DataError, UsageError

# A longer line is no segment but a file without line ends; it must not fill the memory.
LONGEST_LINE = 1 << 24
_BOM = b"\xef\xbb\xbf"


def without_gz(path: Path) -> Path:
    """Take `.gz` off, so that the suffix before it tells the format."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def require_readable(path: Path) -> Path:
    """Refuse now a file that could not be opened later; it is closed again until it is needed."""
    try:
        with path.open("rb"):
            return path
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; name the files in it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be opened ({error.strerror}); check its permissions") from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacked where its name ends in `.gz`."""
    if path.suffix.lower() != ".gz":
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path, "rb") as packed:
            yield cast(BinaryIO, packed)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: broken gzip data ({error}); copy or pack the file again") from None


def lines(path: Path) -> Iterator[str | DataError]:
    """Stream the lines of a UTF-8 file, each as its text or as the fault that keeps it from having one.

    Lines are split at line feeds only: U+2028 or a form feed is text.
    """
    with opened(path) as file:
        number = 0
        while raw := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(raw) > LONGEST_LINE:
                yield DataError(
                    f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB; "
                    f"put each segment on a line of its own"
                )
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LONGEST_LINE)
                continue
            if number == 1:
                raw = raw.removeprefix(_BOM)
            yield _decoded(raw.removesuffix(b"\n").removesuffix(b"\r"), path, number)


def _decoded(raw: bytes, path: Path, number: int) -> str | DataError:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return DataError(
            f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8; "
            f"convert the file to UTF-8 (iconv -f ENCODING -t UTF-8)"
        )
