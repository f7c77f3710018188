"""The folder of what a server must not forget: review queue, audit log, glossaries. One server at a time uses it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from knnmt import host
from knnmt.errors import UsageError
from knnmt.server.audit import Action, AuditLog
from knnmt.server.caller_glossaries import CallerGlossaries
from knnmt.server.people import Caller
from knnmt.server.review import ReviewQueue


class State:
    """Review queue, audit log and callers' glossaries, opened."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror}; choose another folder with --state") from None
        self._open = contextlib.ExitStack()
        if self._open.enter_context(host.lock(folder / "lock")) is None:
            raise UsageError(f"{folder}: another server uses this folder; choose another with --state")
        self.review = ReviewQueue(folder / "review.journal")
        self.audit = AuditLog(folder / "audit.jsonl")
        self.glossaries = CallerGlossaries(folder / "glossaries")
        self._open.callback(self.audit.close)

    def close(self) -> None:
        """Release the folder."""
        self._open.close()


def record(
    state: State | None, caller: Caller, action: Action, memory: str | None = None, ids: Sequence[str] = ()
) -> None:
    """Write to the audit log, if there is one."""
    if state is not None:
        state.audit.append(caller.name, action, memory, ids)
