"""The errors that users see. Each message says what is wrong, where, and what to do.

The command line prints the message on one line and exits with the class's `exit_code`: 2 for wrong usage (a missing
file, an unknown language), 1 for failures. A full disk is still an `OSError`; `writing_to` adds the path to it.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk full, quota exceeded, file too large


@contextlib.contextmanager
def writing_to(path: Path, note: str = "") -> Iterator[None]:
    """Add this path, and a note on what to do, to the error of a full disk, which names no file."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(path)
            if note:
                error.add_note(note)
        raise


class KnnmtError(Exception):
    """The base of all errors with a message for the user."""

    exit_code = 1


class UsageError(KnnmtError):
    """Wrong usage: a missing file, contradictory settings."""

    exit_code = 2


class SettingsError(UsageError):
    """An invalid setting: `field` is its name ("" for a combination of settings), `reason` what is wrong."""

    def __init__(self, settings: str, field: str, reason: str) -> None:
        super().__init__(f"{settings}: {field} {reason}" if field else f"{settings}: {reason}")
        self.field, self.reason = field, reason


class DataError(KnnmtError):
    """Invalid content of a file: names the file, the line and the reason."""


class ModelError(KnnmtError):
    """A model that cannot be found or loaded, or is not supported."""


class MissingExtraError(KnnmtError):
    """A missing optional dependency: names the extra to install."""


class StoreError(KnnmtError):
    """A datastore that is missing, corrupt, of a newer format, or built with another model."""
