"""The audit log: who did what and when, one line of JSON each, appended and never changed. No texts, no keys."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal

Action = Literal["teach", "remove", "import", "export", "suggest", "accept", "reject", "reload"]
TAIL = 1 << 20  # bytes at the end of the log that are read for the latest entries


class AuditLog:
    """A file of entries: time, caller, action, memory, ids of segments."""

    def __init__(self, path: Path) -> None:
        self._path, self._writing = path, Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":  # a crash left half a line
            os.write(self._file, b"\n")

    def append(self, caller: str, action: Action, memory: str | None = None, ids: Sequence[str] = ()) -> None:
        """Write an entry; it is on disk when this returns."""
        entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        entry |= {"caller": caller, "action": action, "memory": memory, "ids": list(ids)}
        with self._writing:
            os.write(self._file, (json.dumps(entry) + "\n").encode())
            os.fsync(self._file)

    def latest(self, count: int) -> list[dict[str, Any]]:
        """The latest entries, the newest first. Half a line, which a crash left, is skipped."""
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[1 if size > TAIL else 0 :]
        found: list[dict[str, Any]] = []
        for line in reversed(lines):
            if len(found) == count:
                break
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
