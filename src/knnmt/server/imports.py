"""Imports of TMX files: they run in the background, and report their progress and result.

A file is read to the end before anything is stored, so that a corrupt one changes nothing. Its segments are then added
in chunks, and the model translates in between.
"""

import itertools
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import anyio.to_thread
from fastapi import HTTPException
from pydantic import BaseModel

from knnmt.corpus import CleanReport, CleanSettings, Languages, Segment, clean, read
from knnmt.corpus.signature import signed
from knnmt.errors import DataError, KnnmtError, UsageError
from knnmt.server.desks import Desk, Memory
from knnmt.server.failures import FAILED, log_failure, unwritable
from knnmt.server.metrics import Metrics
from knnmt.server.people import Caller
from knnmt.server.spool import Spooled
from knnmt.server.uploads import Upload
from knnmt.server.work_items import STOPPING, UnavailableError
from knnmt.server.worker import Worker

_log = logging.getLogger(__name__)
State = Literal["waiting", "running", "done", "failed", "stopped"]

NAME, SUFFIX = "upload.tmx", ".tmx"  # of an upload, in messages and origins
CHUNK = 32  # segments added at a time
MAX_ID = 200  # characters of a segment's id
MAX_FAULTS = 100  # faults listed in a report; all are counted
MAX_OWN, MAX_WAITING = 8, 64  # imports in the queue: of a caller, of all
MAX_REPORTS = 200  # reports of finished imports that are kept
RETRY = "30"  # seconds after which a client may ask again


class Report(BaseModel):
    """The outcome of an import: how many segments were added, and how many were dropped, by reason."""

    added: int = 0
    dropped: dict[str, int] = {}
    faults: list[str] = []


class ImportStatus(BaseModel):
    """An import: `done` of `total` segments were read."""

    id: str
    state: State
    done: int
    total: int
    error: str | None = None
    report: Report


@dataclass(eq=False)
class Import:
    """An import, queued, running or finished."""

    id: str
    file: Spooled
    desk: Desk
    memory: Memory
    total: int
    clean: bool
    state: State = "waiting"
    done: int = 0
    added: int = 0
    error: str | None = None
    cleaned: CleanReport = field(default_factory=CleanReport)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, reason: str, error: DataError) -> None:
        """Count a segment that cannot be imported."""
        self.refused[reason] += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(named(str(error), self.file.path))

    def status(self) -> ImportStatus:
        """Its progress and report."""
        dropped = {str(reason): count for reason, count in (self.cleaned.dropped + self.refused).items()}
        report = Report(added=self.added, dropped=dropped, faults=list(self.faults))
        return ImportStatus(
            id=self.id, state=self.state, done=self.done, total=self.total, error=self.error, report=report
        )


def named(message: str, path: Path) -> str:
    """A message about an upload, with a name that says something in place of its temporary one."""
    return message.replace(str(path), NAME).replace(path.name, NAME)


class Imports:
    """The imports of a server, run one at a time."""

    def __init__(self, worker: Worker, metrics: Metrics) -> None:
        self._worker, self._metrics = worker, metrics
        self._imports: dict[str, Import] = {}
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="import")

    def check_queue(self, caller: Caller) -> None:
        """Refuse another import if too many are queued: 429 if they are the caller's, else 503."""
        queued = [each for each in self._imports.values() if each.state in ("waiting", "running")]
        own = sum(each.desk.caller.id == caller.id for each in queued) if caller.id is not None else 0
        if own >= MAX_OWN:
            raise HTTPException(429, f"{own} of your imports are queued: wait for one to end", {"Retry-After": RETRY})
        if len(queued) >= MAX_WAITING:
            raise UnavailableError("too many imports are queued: try again later", int(RETRY))

    async def queue(self, upload: Upload, desk: Desk, memory: Memory, *, clean: bool) -> ImportStatus:
        """Check a file and queue its import into a memory of the desk."""
        total = await anyio.to_thread.run_sync(self._count, upload.file.path, memory.languages)
        self.check_queue(desk.caller)  # others may have come meanwhile
        new = Import(secrets.token_hex(8), upload.keep(), desk, memory, total, clean)
        self._imports[new.id] = new
        for old in list(self._imports)[:-MAX_REPORTS]:
            del self._imports[old]
        try:
            self._thread.submit(self._run, new)
        except RuntimeError:
            raise UnavailableError(STOPPING, 5) from None
        return new.status()

    def status(self, name: str, caller: Caller) -> ImportStatus:
        """The progress of an import; 404 if there is none, or if it is another caller's."""
        found = self._imports.get(name)
        if found is None or found.desk.caller.id != caller.id:
            raise HTTPException(404, f"no such job: {name!r}")
        return found.status()

    def abandon(self) -> None:
        """Start nothing more."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop after the current chunk: what was added stays, and the file can be imported again."""
        self.abandon()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _count(self, path: Path, languages: Languages) -> int:
        """Read a file to the end and count its segments; 400 if it has none that can be read."""
        faults = 0

        def fault(_: DataError) -> None:
            nonlocal faults
            faults += 1

        try:
            total = sum(1 for _ in self._until_stopped(read(path, languages, bad=fault)))
        except (DataError, UsageError) as error:
            raise HTTPException(400, named(str(error), path)) from None
        if not total:
            raise HTTPException(400, f"{NAME}: no readable segment ({faults} corrupt)")
        return total + faults

    def _until_stopped(self, segments: Iterator[Segment]) -> Iterator[Segment]:
        """The segments, until the server stops: reading a large file takes minutes."""
        for segment in segments:
            if self._stopping.is_set():
                raise UnavailableError(STOPPING, 5)
            yield segment

    def _run(self, one: Import) -> None:
        one.state = "running"
        try:
            for chunk in self._chunks(one):
                self._add(one, chunk)
            one.state = "done"
        except UnavailableError:
            one.state = "stopped"
        except KnnmtError as error:
            one.state, one.error = "failed", named(str(error), one.file.path)
        except Exception as error:
            one.state, one.error = "failed", unwritable(error) or FAILED
            log_failure(_log, error)
        finally:
            one.file.discard()

    def _chunks(self, one: Import) -> Iterator[list[Segment]]:
        def counted(segments: Iterator[Segment]) -> Iterator[Segment]:
            for segment in segments:
                one.done += 1
                yield replace(segment, origin=named(segment.origin, one.file.path))

        def fault(error: DataError) -> None:
            one.done += 1
            one.fault("unreadable", error)

        settings = CleanSettings() if one.clean else CleanSettings(check_language=False, max_ratio=None)

        def named_shortly(segments: Iterator[Segment]) -> Iterator[Segment]:
            for segment in segments:
                if (size := len(segment.id or "")) > MAX_ID:
                    fault(DataError(f"{segment.id:.40}…: an id of {size} characters; at most {MAX_ID}"))
                else:
                    yield segment

        segments = named_shortly(self._until_stopped(read(one.file.path, one.memory.languages, bad=fault)))
        cleaned = clean(counted(segments), one.memory.languages, settings, report=one.cleaned)
        while chunk := list(itertools.islice(cleaned, CHUNK)):
            yield chunk

    def _add(self, one: Import, chunk: list[Segment]) -> None:
        """Add a chunk, without the segments that the store rejects."""
        model, author = one.desk.translator.model, one.desk.caller.name
        signed_chunk = [signed(segment, author) for segment in chunk]
        added = self._worker.call_blocking(
            lambda: one.memory.store.add(signed_chunk, model, bad=lambda error: one.fault("unfit", error)),
            one.memory.store.path,
        )
        one.added += len(added.ids)
        self._metrics.taught.inc(len(added.ids))
