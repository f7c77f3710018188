"""Uploads and results on disk: in a folder of this process, within a quota, and gone when the process is.

The folder is locked while the process lives. What a killed server left behind is removed by the next one that starts.
"""

import contextlib
import logging
import secrets
import tempfile
import threading
import time
from pathlib import Path

from knnmt import host
from knnmt.server.work_items import UnavailableError

_log = logging.getLogger(__name__)
PREFIX = "knnmt-spool-"
LOCK = "lock"
YOUNG = 60.0  # seconds after which a folder without a lock is not one that is just being made
FULL = "no room for more files: try again later"
RETRY = 30  # seconds after which a client may ask again


class Spooled:
    """A file, and the bytes of the quota that are set aside for it."""

    def __init__(self, spool: "Spool", path: Path) -> None:
        self._spool, self.path, self.size = spool, path, 0

    def resize(self, size: int) -> None:
        """Set aside as many bytes as the file really has."""
        self._spool.count(size - self.size)
        self.size = size

    def discard(self) -> None:
        """Remove the file, and return its room."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.resize(0)


class Spool:
    """A folder for uploads and results, made when the first one comes."""

    def __init__(self, quota: int) -> None:
        self._quota, self._used = quota, 0
        self._counting = threading.Lock()
        self._open = contextlib.ExitStack()
        self._folder: Path | None = None

    def lacks(self, size: int) -> bool:
        """Whether there is no room for so many bytes more."""
        return self._used + size > self._quota

    def reserve(self, size: int, suffix: str = "") -> Spooled:
        """A place for a new file of at most `size` bytes, with a name that cannot be guessed; 503 if it is full."""
        if self.lacks(size):
            raise UnavailableError(FULL, RETRY)
        new = Spooled(self, self._own_folder() / (secrets.token_hex(16) + suffix))
        new.resize(size)
        return new

    def count(self, size: int) -> None:
        """Count bytes that are set aside, or returned if negative."""
        with self._counting:
            self._used += size

    def close(self) -> None:
        """Remove the folder."""
        self._open.close()
        if self._folder is not None:
            _remove(self._folder)
            self._folder = None

    def _own_folder(self) -> Path:
        if self._folder is None or not self._folder.is_dir():  # something may have cleaned the temporary folder
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._open.enter_context(host.lock(self._folder / LOCK))
        return self._folder


def remove_abandoned() -> None:
    """Remove the folders of servers that were killed: nobody holds their locks."""
    try:
        folders = list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:
        return
    for folder in folders:
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            if folder.is_symlink() or not folder.is_dir():
                continue
            if not (folder / LOCK).exists() and time.time() - folder.stat().st_mtime < YOUNG:
                continue
            with host.lock(folder / LOCK) as held:
                if held is not None:
                    _log.info("removing the files of a server that was killed")
                    _remove(folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        host.discard(folder)
