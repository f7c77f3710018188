"""Documents that clients upload: translated in the background, kept for a while, then removed.

A document goes to the model's thread in small requests, between which others get their turn. Large documents have
threads of their own, so that a small one does not wait for them.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import PurePath
from queue import SimpleQueue
from typing import Literal, NoReturn

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict

from knnmt.documents import open_document
from knnmt.documents.formats import SAMPLE, known
from knnmt.documents.pretranslate import Tally, Translated, pretranslate, texts_of
from knnmt.errors import DataError, KnnmtError, UsageError
from knnmt.languages import Languages
from knnmt.server.desks import Desk
from knnmt.server.failures import FAILED, log_failure, unwritable
from knnmt.server.people import Caller
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import FULL, RETRY, Spool, Spooled
from knnmt.server.uploads import Upload
from knnmt.server.work_items import STOPPING, DecodingOptions, TextRequest, UnavailableError, answer
from knnmt.server.worker import GRACE, Worker
from knnmt.text.inline import Inline
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
State = Literal["waiting", "running", "done", "failed", "cancelled"]

SMALL = 1 << 18  # bytes of a document that does not wait for larger ones
WINDOW = 64  # texts of a document that are translated before other requests have their turn
THREADS = 2  # documents of each kind, small and large, that are translated at the same time
MAX_NAME, MAX_SUFFIX = 100, 20  # characters of a file's name
MAX_PROBLEMS = 100  # problems listed in a report; all are counted
KEPT = 60.0  # seconds that a result is kept, even if its room is needed
UNSUPPORTED = "Invalid request: file format not supported"


class DocumentReport(BaseModel):
    """What was done: units and words translated, exact matches among them, and what was left as it is."""

    model_config = ConfigDict(from_attributes=True)

    units: int = 0
    words: int = 0
    exact: int = 0
    kept: int = 0
    left: int = 0
    problems: list[str] = []


class DocumentStatus(BaseModel):
    """A document: `done` of `total` different texts are translated; `problems` counts those that could not be."""

    id: str
    name: str
    result: str
    state: State
    done: int
    total: int
    problems: int
    error: str | None = None
    report: DocumentReport


@dataclass(frozen=True)
class HowToRead:
    """How to read a document: what `knnmt translate` has as --format, --columns and --all."""

    format: str | None = None
    columns: tuple[str, ...] = ()
    everything: bool = False


@dataclass(eq=False)
class DocumentJob:
    """A document on its way. Its file is the upload until it is done, and the translated document from then on."""

    name: str
    result: str  # the name of the translated document
    owner: str | None  # id of the caller who may have it; None: whoever knows the id
    file: Spooled
    translator: Translator
    languages: Languages
    options: DecodingOptions
    how: HowToRead
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    state: State = "waiting"
    done: int = 0
    total: int = 0
    tally: Tally = field(default_factory=Tally)
    error: str | None = None
    fault: Exception | None = None
    ended: float | None = None  # when, on the monotonic clock
    finished: "Future[None]" = field(default_factory=Future)
    request: TextRequest | None = None  # that the model works on
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop at the next decoding step."""
        self.cancelled.set()
        answer(self.finished, None)
        if self.request is not None:
            self.request.future.cancel()

    def status(self) -> DocumentStatus:
        """Its progress and report."""
        request = self.request
        done = self.done + (request.texts_done if request is not None else 0)
        report = DocumentReport.model_validate(self.tally)
        report.problems = report.problems[:MAX_PROBLEMS]
        return DocumentStatus(
            id=self.id, name=self.name, result=self.result, state=self.state, done=min(done, self.total),
            total=self.total, problems=len(self.tally.problems), error=self.error, report=report,
        )  # fmt: skip


class Pool:
    """Threads for documents. A process ends without waiting for one that is still reading a large document."""

    def __init__(self, work: Callable[[DocumentJob], None]) -> None:
        self._work, self._jobs = work, SimpleQueue[DocumentJob | None]()
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def put(self, job: DocumentJob) -> None:
        """Work on a document when its turn comes."""
        if self._stopped:
            raise UnavailableError(STOPPING, 5)
        while len(self._threads) < THREADS:
            self._threads.append(threading.Thread(target=self._run, name="document", daemon=True))
            self._threads[-1].start()
        self._jobs.put(job)

    def stop(self, until: float) -> None:
        """End the threads, and wait for them until then (monotonic)."""
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._work(job)


class DocumentJobs:
    """The documents of a server, by id."""

    def __init__(self, worker: Worker, settings: ServerSettings, spool: Spool) -> None:
        self._worker, self._settings, self._spool = worker, settings, spool
        self._jobs: dict[str, DocumentJob] = {}
        self._small, self._large = Pool(self._run), Pool(self._run)

    def make_room(self, size: int, caller: Caller | None) -> None:
        """Remove the oldest results if they stand in the way of a new document. If that is not enough, 429 for a caller
        who has half of all documents, else 503."""
        self.expire()
        ended = sorted((job for job in self._jobs.values() if job.ended is not None), key=lambda job: job.ended or 0.0)
        for job in ended:
            if not self._full(size) or time.monotonic() - (job.ended or 0.0) < KEPT:
                break
            self.remove(job)
        if self._full(size):
            self._refuse(caller)

    def _refuse(self, caller: Caller | None) -> NoReturn:
        own = sum(job.owner == caller.id for job in self._jobs.values()) if caller is not None else 0
        if 2 * own >= self._settings.max_files:
            reason = f"{own} of your documents are here: fetch and delete some, or wait"
            raise HTTPException(429, reason, {"Retry-After": str(RETRY)})
        raise UnavailableError(FULL, RETRY)

    def _full(self, size: int) -> bool:
        return len(self._jobs) >= self._settings.max_files or self._spool.lacks(size)

    def start(self, upload: Upload, desk: Desk, options: DecodingOptions, how: HowToRead) -> DocumentJob:
        """Queue a document; 400 if its format is unknown."""
        name = plain_name(upload.name or "")
        if how.format is None:
            with upload.file.path.open("rb") as content:
                if known(PurePath(name), content.read(SAMPLE)) is None:
                    raise HTTPException(400, UNSUPPORTED)
        if len(self._jobs) >= self._settings.max_files:  # others may have come while it was received
            self._refuse(desk.caller)
        pool = self._small if upload.file.size <= SMALL else self._large
        result, translator = result_name(name, desk.languages.target), desk.translator
        job = DocumentJob(
            name, result, desk.caller.id, upload.keep(), translator, desk.languages, options, how
        )  # fmt: skip
        self._jobs[job.id] = job
        pool.put(job)
        return job

    def find(self, id: str, caller: Caller) -> DocumentJob:
        """A document; 404 if there is none, or if it is another caller's."""
        self.expire()
        job = self._jobs.get(id)
        if job is None or job.owner != caller.id:
            raise HTTPException(404, "no such file: it was removed, or never there")
        return job

    def remove(self, job: DocumentJob) -> None:
        """Cancel a document, and forget it."""
        job.cancel()
        self._jobs.pop(job.id, None)
        if job.ended is not None:
            job.file.discard()  # else its thread does

    def expire(self) -> None:
        """Remove documents that have been kept for long enough."""
        before = time.monotonic() - self._settings.file_lifetime
        for job in [job for job in self._jobs.values() if job.ended is not None and job.ended < before]:
            self.remove(job)

    def abandon(self) -> None:
        """Stop at the next decoding step."""
        for job in list(self._jobs.values()):
            job.cancel()

    def stop(self) -> None:
        """Stop all."""
        self.abandon()
        until = time.monotonic() + GRACE
        for pool in (self._small, self._large):
            pool.stop(until)

    # ------------------------------------------------------------------------------------------------- in a thread

    def _run(self, job: DocumentJob) -> None:
        state: State = "failed"
        try:
            self._translate(job)
            state = "done"
        except CancelledError:
            state = "cancelled"
        except UnavailableError as error:
            job.fault, job.error = error, str(error)
        except KnnmtError as error:
            job.fault, job.error = error, str(error)
        except Exception as error:
            job.fault, job.error = error, unwritable(error) or FAILED
            log_failure(_log, error)
        job.request = None
        job.ended = time.monotonic()
        job.state = state
        if state != "done" or job.id not in self._jobs:
            job.file.discard()
        answer(job.finished, None)

    def _translate(self, job: DocumentJob) -> None:
        if job.cancelled.is_set():
            raise CancelledError
        job.state = "running"
        how = job.how
        document = open_document(
            job.file.path.read_bytes(), how.format, languages=job.languages, columns=how.columns, name=job.name
        )
        job.total = texts_of(document, everything=how.everything)

        def translate(units: Sequence[Inline]) -> list[Translated]:
            request = job.request = TextRequest(job.translator, job.options, units, limited=False)
            if job.cancelled.is_set():
                raise CancelledError
            found = self._worker.translate_blocking(request)
            return [Translated(each.target, each.score, each.match is not None, each.problems) for each in found]

        def progress(count: int) -> None:
            job.request = None
            job.done += count

        job.tally = pretranslate(
            document, translate, everything=how.everything, glossary=job.options.glossary, window=WINDOW,
            progress=progress,
        )  # fmt: skip
        content = document.to_bytes()
        job.file.path.write_bytes(content)
        job.file.resize(len(content))


def plain_name(name: str) -> str:
    """A client's file name without folders and control characters, and not too long; the suffix stays."""
    base = name.replace("\\", "/").rpartition("/")[2]
    path = PurePath("".join(filter(str.isprintable, base)).strip() or "file")
    suffix = path.suffix[:MAX_SUFFIX]
    return path.stem[:MAX_NAME] + suffix


def result_name(name: str, target: str) -> str:
    """The name of a translated document: `messages_de.po` for `messages.pot`."""
    path = PurePath(name)
    return f"{path.stem}_{target}{'.po' if path.suffix.lower() == '.pot' else path.suffix}"


def raise_fault(job: DocumentJob) -> None:
    """Raise what made a document fail: 400 if the document is to blame."""
    if isinstance(job.fault, DataError | UsageError | UnavailableError):
        raise job.fault
    if job.cancelled.is_set():
        raise UnavailableError("cancelled", 5)
    if job.state != "done":
        raise HTTPException(500, job.error)
