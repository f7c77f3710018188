"""Opening files, plain or gzipped: checked before any work starts, streamed, with errors that name file and line."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from knnmt import encoding
from knnmt.errors import DataError, UsageError

MAX_LINE = 1 << 24  # bytes: a longer line means a file without line ends, which must not fill the memory
_BOM = b"\xef\xbb\xbf"


def without_gz(path: Path) -> Path:
    """Strip `.gz`, so that the suffix is that of the format."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def require_readable(path: Path) -> Path:
    """Fail early if a file cannot be opened."""
    try:
        with path.open("rb"):
            return path
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; name the files in it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot open it ({error.strerror}); check its permissions") from None


def require_text(path: Path) -> Path:
    """Fail early if a file cannot be opened, or does not start as UTF-8 text."""
    require_readable(path)
    with opened(path) as file:
        encoding.require_utf8(file.read(encoding.SAMPLE), path)
    return path


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if its name ends in `.gz`."""
    if path.suffix.lower() != ".gz":
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path, "rb") as packed:
            yield cast(BinaryIO, packed)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: corrupt gzip data ({error}); copy or compress the file again") from None


def lines(path: Path) -> Iterator[str | DataError]:
    """Stream the lines of a UTF-8 file, each as its text, or as an error if it is not valid.

    Lines are split at line feeds only: U+2028 and form feeds are text. If most lines turn out to be in another
    encoding, the file is refused at its end.
    """
    census = encoding.Census()
    with opened(path) as file:
        while raw := file.readline(MAX_LINE + 1):
            if len(raw) > MAX_LINE:
                census.lines += 1
                yield DataError(
                    f"{path}:{census.lines}: line longer than {MAX_LINE >> 20} MiB; "
                    f"put each segment on a line of its own"
                )
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE)
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
