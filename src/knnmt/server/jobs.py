"""Imports: long, so they run beside the server's other work and tell how far they are and what they did.

A file is read through once before anything is stored, so that a broken one changes nothing. It is then added in
chunks, between which the model translates.
"""

import itertools
import logging
import secrets
import shutil
import tempfile
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
from knnmt.errors import DataError, KnnmtError, UsageError
from knnmt.server.metrics import Metrics
from knnmt.server.worker import STOPPING, UnavailableError, Worker, log_failure
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
State = Literal["waiting", "running", "done", "failed", "stopped"]

CHUNK = 32  # segments that are added at a time
FAULTS = 100  # faults that a report names; all are counted
WAITING = 8  # imports that may wait
REMEMBERED = 100  # imports whose reports are kept


class Report(BaseModel):
    """What became of the segments of a file: `added` are in the memory, `dropped` are not, for which reason."""

    added: int = 0
    dropped: dict[str, int] = {}
    faults: list[str] = []


class JobOut(BaseModel):
    """An import: `done` of `total` segments were looked at."""

    id: str
    state: State
    done: int
    total: int
    error: str | None = None
    report: Report


@dataclass(eq=False)
class Job:
    """An import on its way."""

    id: str
    path: Path
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
        """Count a segment that cannot be taken."""
        self.refused[reason] += 1
        if len(self.faults) < FAULTS:
            self.faults.append(named(str(error), self.path))

    def shown(self) -> JobOut:
        """How it stands."""
        dropped = {str(reason): count for reason, count in (self.cleaned.dropped + self.refused).items()}
        report = Report(added=self.added, dropped=dropped, faults=list(self.faults))
        return JobOut(id=self.id, state=self.state, done=self.done, total=self.total, error=self.error, report=report)


def named(message: str, path: Path) -> str:
    """A message about an upload, without the place where it lies."""
    return message.replace(str(path), path.name)


class Jobs:
    """The imports of a server, one at a time."""

    def __init__(self, translator: Translator, worker: Worker, metrics: Metrics, languages: Languages) -> None:
        self._translator, self._worker, self._metrics, self._languages = translator, worker, metrics, languages
        self._jobs: dict[str, Job] = {}
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="import")

    async def take(self, path: Path, *, clean: bool) -> JobOut:
        """Check a file, which is moved away, and queue its import."""
        if sum(job.state in ("waiting", "running") for job in self._jobs.values()) >= WAITING:
            raise HTTPException(503, "too many imports wait: try again later", {"Retry-After": "30"})
        total = await anyio.to_thread.run_sync(self._count, path)
        kept = shutil.move(path, tempfile.mkdtemp(prefix="knnmt-import-"))
        job = Job(secrets.token_hex(8), Path(kept), total, clean)
        self._jobs[job.id] = job
        for old in list(self._jobs)[:-REMEMBERED]:
            del self._jobs[old]
        try:
            self._thread.submit(self._run, job)
        except RuntimeError:
            raise UnavailableError(STOPPING, 5) from None
        return job.shown()

    def shown(self, name: str) -> JobOut:
        """How an import stands."""
        if name not in self._jobs:
            raise HTTPException(404, f"there is no job {name!r}")
        return self._jobs[name].shown()

    def abandon(self) -> None:
        """Begin nothing more."""
        self._stopping.set()

    def stop(self) -> None:
        """End after the chunk in hand: what was added stays, and the file can be imported again."""
        self.abandon()
        self._thread.shutdown(wait=True, cancel_futures=True)
        for job in self._jobs.values():
            shutil.rmtree(job.path.parent, ignore_errors=True)

    def _count(self, path: Path) -> int:
        """Read a file through; what is wrong with all of it is the client's fault."""
        faults = 0

        def fault(_: DataError) -> None:
            nonlocal faults
            faults += 1

        try:
            total = sum(1 for _ in self._going_on(read(path, self._languages, bad=fault)))
        except (DataError, UsageError) as error:
            raise HTTPException(400, named(str(error), path)) from None
        if not total:
            raise HTTPException(400, f"{path.name}: it holds no segment that can be read ({faults} are broken)")
        return total + faults

    def _going_on(self, segments: Iterator[Segment]) -> Iterator[Segment]:
        """The segments, until the server stops: a file may be read for minutes, and hold none that is good."""
        for segment in segments:
            if self._stopping.is_set():
                raise UnavailableError(STOPPING, 5)
            yield segment

    def _run(self, job: Job) -> None:
        job.state = "running"
        try:
            for chunk in self._chunks(job):
                self._add(job, chunk)
            job.state = "done"
        except UnavailableError:
            job.state = "stopped"
        except KnnmtError as error:
            job.state, job.error = "failed", named(str(error), job.path)
        except Exception as error:
            job.state, job.error = "failed", "the server could not go on; its log says why"
            log_failure(_log, error)
        finally:
            shutil.rmtree(job.path.parent, ignore_errors=True)

    def _chunks(self, job: Job) -> Iterator[list[Segment]]:
        def seen(segments: Iterator[Segment]) -> Iterator[Segment]:
            for segment in segments:
                job.done += 1
                yield replace(segment, origin=named(segment.origin, job.path))

        def fault(error: DataError) -> None:
            job.done += 1
            job.fault("unreadable", error)

        settings = CleanSettings() if job.clean else CleanSettings(check_language=False, max_ratio=None)
        segments = self._going_on(read(job.path, self._languages, bad=fault))
        found = clean(seen(segments), self._languages, settings, report=job.cleaned)
        while chunk := list(itertools.islice(found, CHUNK)):
            yield chunk

    def _add(self, job: Job, chunk: list[Segment]) -> None:
        """Add those of a chunk that are fit."""
        added = self._worker.patiently(lambda: self._translator.add(chunk, bad=lambda error: job.fault("unfit", error)))
        job.added += len(added.ids)
        self._metrics.taught.inc(len(added.ids))
