"""The errors a user can meet. Each message says what is wrong, where, and what to do.

The command line prints the message on one line and exits with the class's `exit_code`:
2 where the call itself is wrong (a missing file, an unknown language), 1 where the work failed.
A disk that is full stays the system's own `OSError`; `writing_to` lets it say where that was.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, no quota, a file larger than it may be


@contextlib.contextmanager
def writing_to(path: Path, note: str = "") -> Iterator[None]:
    """Let the error of a full disk, which names no file, name this one, and carry a note on what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(path)
            if note:
                error.add_note(note)
        raise


class KnnmtError(Exception):
    """Anything that knnmt refuses or fails to do for a reason it can name."""

    exit_code = 1


class UsageError(KnnmtError):
    """What was asked for cannot be meant: a file that is not there, settings that contradict."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is not what it may be: `field` is its name ("" for several together), `reason` what it takes."""

    def __init__(self, settings: str, field: str, reason: str) -> None:
        super().__init__(f"{settings}: {field} {reason}" if field else f"{settings}: {reason}")
        self.field, self.reason = field, reason


class DataError(KnnmtError):
    """A file's content is not what its name says: names the file, the line and the reason."""


class ModelError(KnnmtError):
    """A model cannot be found or loaded, or is no translation model that knnmt can run."""


class MissingExtraError(KnnmtError):
    """An optional dependency is needed and not installed: names the extra that brings it."""


class StoreError(KnnmtError):
    """A datastore is not there, damaged, of a newer format, or made with another model: says which."""
