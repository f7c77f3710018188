"""Opening files: plain or gzipped, checked before any work, streamed, with errors that name the place."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from knnmt import encoding
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


def require_text(path: Path) -> Path:
    """Refuse now a file that cannot be opened, or does not begin as UTF-8 text does."""
    require_readable(path)
    with opened(path) as file:
        encoding.require_utf8(file.read(encoding.SAMPLE), path)
    return path


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

    Lines are split at line feeds only: U+2028 or a form feed is text. A file that turns out to be written in another
    encoding, though it began like UTF-8, is refused at its end.
    """
    census = encoding.Census()
    with opened(path) as file:
        while raw := file.readline(LONGEST_LINE + 1):
            if len(raw) > LONGEST_LINE:
                census.lines += 1
                yield DataError(
                    f"{path}:{census.lines}: the line is longer than {LONGEST_LINE >> 20} MiB; "
                    f"put each segment on a line of its own"
                )
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LONGEST_LINE)
                continue
            if census.lines == 0:
                raw = raw.removeprefix(_BOM)
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            reason = census.take(raw)
            if reason is None:
                yield raw.decode("utf-8")
            else:
                yield DataError(f"{path}:{census.lines}: {reason}; {encoding.refusal(raw, path)}")
    census.require_utf8(path)
