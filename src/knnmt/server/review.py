"""The review queue: suggestions of those who may not teach wait on disk until a reviewer accepts or rejects them.

A journal keeps suggestions and decisions. Both are on disk before they are acknowledged. It is rewritten from time to
time, and when the server starts: what was decided leaves it then. The audit log has who decided.
"""

import contextlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Literal

from knnmt.corpus import Segment
from knnmt.errors import KnnmtError
from knnmt.server.people import Caller
from knnmt.server.work_items import UnavailableError
from knnmt.store.journal import Journal

Decision = Literal["accepted", "rejected"]
MAX_WAITING = 10_000  # suggestions
SETTLED = 1000  # records of a journal that are needed no more before it is rewritten
FULL = "the review queue is full: ask a reviewer to empty it"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Suggestion:
    """A segment that somebody suggested for a memory; `segment` is the id that it is to have, if it names one."""

    memory: str
    source: str
    target: str
    origin: str
    author: str
    segment: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    date: str = field(default_factory=_now)

    @property
    def about(self) -> tuple[str, str, str, str | None]:
        """What a newer suggestion must share to replace it."""
        return self.memory, self.author, self.source, self.segment

    def lesson(self, target: str | None = None) -> Segment:
        """The segment to teach, with another translation if a reviewer edited it."""
        return Segment(self.source, target or self.target, self.origin, self.segment)

    def visible_to(self, caller: Caller) -> bool:
        """Whether a caller may see it: reviewers of its memory, and who suggested it."""
        mine = bool(caller.name) and caller.name == self.author and caller.may_use(self.memory)
        return mine or caller.may("review", self.memory)


class ReviewQueue:
    """The suggestions that wait, by id, the oldest first."""

    def __init__(self, path: Path) -> None:
        self._journal, self._writing = Journal(path), Lock()
        self._waiting: dict[str, Suggestion] = {}
        self._records = 0  # of the journal
        for content in self._journal.read():
            self._apply(json.loads(content))
        if self._records > len(self):
            self._rewrite()

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self, caller: Caller) -> list[Suggestion]:
        """The suggestions that a caller may see, the oldest first."""
        return [each for each in list(self._waiting.values()) if each.visible_to(caller)]

    def find(self, id: str) -> Suggestion | None:
        """A suggestion that waits."""
        return self._waiting.get(id)

    def suggest(self, suggestions: Sequence[Suggestion]) -> list[str]:
        """Queue suggestions: on disk when this returns, all or none. A newer one of an author for a text replaces
        theirs."""
        if len(self) + len(suggestions) > MAX_WAITING:
            raise UnavailableError(FULL, 60)
        about = {each.about for each in suggestions}
        older = [old.id for old in list(self._waiting.values()) if old.about in about]
        self._write({"suggested": [asdict(each) for each in suggestions], "replaced": older})
        return [each.id for each in suggestions]

    def decide(self, id: str, decision: Decision, reviewer: str) -> None:
        """Take a suggestion out of the queue: on disk when this returns."""
        self._write({"decided": id, "decision": decision, "reviewer": reviewer, "date": _now()})

    def _write(self, record: dict[str, object]) -> None:
        with self._writing:
            self._journal.append(json.dumps(record).encode())
            self._apply(record)
            if self._records > SETTLED + 2 * len(self):
                self._rewrite()

    def _rewrite(self) -> None:
        """Keep only what waits. On a full disk the journal stays as it is, which is whole too."""
        waiting = [asdict(each) for each in self._waiting.values()]
        with contextlib.suppress(OSError, KnnmtError):
            self._journal.rewrite(json.dumps({"suggested": [each]}).encode() for each in waiting)
            self._records = len(waiting)

    def _apply(self, record: dict[str, object]) -> None:
        self._records += 1
        for id in (*record.get("replaced", ()), record.get("decided", "")):  # type: ignore[misc]
            self._waiting.pop(id, None)
        for each in record.get("suggested", ()):  # type: ignore[attr-defined]
            suggestion = Suggestion(**each)
            self._waiting[suggestion.id] = suggestion
