"""The one thread that owns the model: it takes requests in their order, and translates together what fits together.

While it works, requests gather; the next batch is then as large as it may be. A request that is larger than a batch
is served in slices, with a turn for the others in between. Nothing that came after a lesson is translated before it.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from knnmt.errors import KnnmtError
from knnmt.memory import hold_little, trim
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.translate import TranslateSettings, Translation, Translator

_log = logging.getLogger(__name__)
T = TypeVar("T")

TIDY = 10.0  # seconds after which freed memory goes back to the system
PATIENCE = 5  # times `gather`: how long a batch waits at most, as long as requests keep joining it
CHARACTERS = 4  # of a token, about


@dataclass(frozen=True)
class How:
    """What requests must have in common to be translated together."""

    system: str | None = None  # the server's, unless named
    weight: float | None = None  # λ
    beam: int = 5
    n_best: int = 1
    evidence: bool = False


class UnavailableError(Exception):
    """The queue is full, or the server is about to stop; `retry_after` is in seconds."""

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(eq=False)
class _Texts:
    """Texts that a request waits for; those before `begin` are translated."""

    how: How
    texts: Sequence[str]
    future: "Future[list[Translation]]" = field(default_factory=Future)
    found: list[Translation] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # in tokens, as soon as it is looked at

    @property
    def begin(self) -> int:
        return len(self.found)

    @property
    def characters(self) -> int:
        """Of the texts that are still to be translated."""
        return sum(map(len, self.texts[self.begin :]))


@dataclass(eq=False)
class _Call:
    """Something else to be done by the thread that owns the model."""

    function: Callable[[], Any]
    future: "Future[Any]" = field(default_factory=Future)


_Slice = tuple[_Texts, int]  # up to which of its texts


class Worker:
    """Owns a translator: after `start`, nobody else may use it."""

    def __init__(self, translator: Translator, settings: ServerSettings, metrics: Metrics) -> None:
        self._translator, self._settings, self._metrics = translator, settings, metrics
        self._jobs: deque[_Texts | _Call] = deque()
        self._asides: deque[_Call] = deque()
        self._characters = 0  # that wait
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._pace = 0.0  # seconds a token when batches are large, as measured lately

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, finish what is there, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""
        return self._thread.is_alive() and not self._stopping

    # ------------------------------------------------------------------------------------- for the event loop

    async def translate(self, texts: Sequence[str], how: How) -> list[Translation]:
        """Translate texts, in a batch with whatever else is there. TimeoutError after the time limit."""
        if not texts:
            return []
        return await self._wait(self._submit(_Texts(how, texts)))

    async def call(self, function: Callable[[], T]) -> T:
        """Have the thread do something, in its turn: what comes later waits for it."""
        return await self._wait(self._submit(_Call(function)))

    async def aside(self, function: Callable[[], T]) -> T:
        """Have the thread do something short as soon as it can, before all that waits."""
        job = _Call(function)
        with self._changed:
            self._asides.append(job)
            self._changed.notify_all()
        return await self._wait(job.future)

    def patiently(self, function: Callable[[], T]) -> T:
        """`call` for a thread that can wait, however long the queue is: one step of a long job at a time."""
        job = _Call(function)
        self._submit(job, bounded=False)
        result: T = job.future.result()
        return result

    async def _wait(self, future: "Future[T]") -> T:
        """Cancelled when given up, so that the thread passes over it."""
        return await asyncio.wait_for(asyncio.wrap_future(future), self._settings.time_limit)

    def _submit(self, job: _Texts | _Call, *, bounded: bool = True) -> "Future[Any]":
        with self._changed:
            if self._stopping:
                raise UnavailableError("the server is about to stop", 5)
            wait = self._characters / CHARACTERS * self._pace
            if bounded and (len(self._jobs) >= self._settings.queue or 2 * wait > self._settings.time_limit):
                retry = min(60, max(1, math.ceil(wait / 2)))  # about half of what waits will be done by then
                raise UnavailableError("too many requests wait for the model: try again later", retry)
            self._put(job)
        return job.future

    def _put(self, job: _Texts | _Call, *, first: bool = False) -> None:
        """Queue a job; whoever calls this holds the lock."""
        (self._jobs.appendleft if first else self._jobs.append)(job)
        self._characters += job.characters if isinstance(job, _Texts) else 0
        self._metrics.waiting.set(len(self._jobs))
        self._changed.notify_all()

    # ------------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        hold_little()
        tidied = time.monotonic()
        while (job := self._next()) is not None:
            if isinstance(job, _Call):
                self._do(job)
            else:
                self._translate(self._gather(job))
            if time.monotonic() - tidied > TIDY:
                trim()  # batches of all sizes leave holes, and more of them the longer a server runs
                tidied = time.monotonic()

    def _next(self) -> _Texts | _Call | None:
        with self._changed:
            while not self._jobs and not self._asides:
                if self._stopping:
                    return None
                self._changed.wait()
            return self._asides.popleft() if self._asides else self._taken(0)

    def _taken(self, place: int) -> _Texts | _Call:
        job = self._jobs[place]
        del self._jobs[place]
        self._characters -= job.characters if isinstance(job, _Texts) else 0
        self._metrics.waiting.set(len(self._jobs))
        return job

    def _gather(self, first: _Texts) -> list[_Slice]:
        """A batch: `first`, and all that can be translated with it, that waits or comes within moments."""
        room = self._settings.batch_tokens
        batch: list[_Slice] = []
        until = time.monotonic() + PATIENCE * self._settings.gather
        job: _Texts | None = first
        while job is not None:
            room = self._slice(job, batch, room)
            job = self._like(first.how, until) if room > 0 else None
        return batch

    def _like(self, how: How, until: float) -> _Texts | None:
        """The next job of the kind. Nothing overtakes a call: that may be a lesson."""
        with self._changed:
            while True:
                for place, job in enumerate(self._jobs):
                    if isinstance(job, _Call):
                        return None
                    if job.how == how:
                        self._taken(place)
                        return job
                patience = min(self._settings.gather, until - time.monotonic())
                if self._stopping or patience <= 0 or not self._changed.wait(patience):
                    return None

    def _slice(self, job: _Texts, batch: list[_Slice], room: int) -> int:
        """Take as many of a job's texts as there is room for (one, if the batch is empty); what room is left."""
        if job.future.cancelled():
            return room
        try:
            job.sizes = job.sizes or [len(ids) for ids in self._translator.model.tokenizer.encode_source(job.texts)]
        except Exception as error:
            _fail(job.future, error)
            return room
        end = job.begin
        while end < len(job.texts) and (job.sizes[end] <= room or (not batch and end == job.begin)):
            room -= job.sizes[end]
            end += 1
        if end == job.begin:
            with self._changed:
                self._put(job, first=True)  # it begins the next batch
            return 0
        batch.append((job, end))
        return room if end == len(job.texts) else 0

    def _translate(self, batch: list[_Slice]) -> None:
        if not batch:
            return
        how, begun = batch[0][0].how, time.perf_counter()
        texts = [text for job, end in batch for text in job.texts[job.begin : end]]
        try:
            self._refresh()
            translator = self._translator
            if how.system is not None or how.weight is not None:
                translator = translator.using(system=how.system, weight=how.weight)
            rounds = math.ceil(len(texts) / self._settings.batch_size)  # of equal size: a small last one would be dear
            size = math.ceil(len(texts) / rounds)
            settings = TranslateSettings(beam=how.beam, n_best=how.n_best, evidence=how.evidence, batch_size=size)
            found = translator.translate(texts, settings)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0].future, error)
            else:
                for one in batch:  # so that only those fail that would have failed alone
                    self._translate([one])
            return
        tokens = sum(sum(job.sizes[job.begin : end]) for job, end in batch)
        self._measure(len(batch), len(texts), tokens, time.perf_counter() - begun)
        self._hand_out(batch, found)

    def _hand_out(self, batch: list[_Slice], found: list[Translation]) -> None:
        place = 0
        for job, end in batch:
            size = end - job.begin
            job.found += found[place : place + size]
            place += size
            if end == len(job.texts):
                _answer(job.future, job.found)
            elif not job.future.cancelled():
                with self._changed:
                    self._put(job)  # behind those who came meanwhile

    def _do(self, job: _Call) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            _answer(job.future, job.function())
        except Exception as error:
            _fail(job.future, error)

    def _refresh(self) -> None:
        """Take up what other processes wrote."""
        try:
            self._translator.refresh()
        except KnnmtError as error:  # what is loaded still serves
            _log.error("the store cannot be read again: %s", error)

    def _measure(self, requests: int, segments: int, tokens: int, seconds: float) -> None:
        metrics = self._metrics
        metrics.batch_requests.observe(requests)
        metrics.batch_segments.observe(segments)
        metrics.tokens.inc(tokens)
        metrics.busy.inc(seconds)
        if 2 * tokens >= self._settings.batch_tokens:
            self._pace += (0.3 if self._pace else 1.0) * (seconds / tokens - self._pace)


def _answer(future: "Future[Any]", result: object) -> None:
    with contextlib.suppress(InvalidStateError):  # whoever asked has given up
        future.set_result(result)


def _fail(future: "Future[Any]", error: Exception) -> None:
    if not isinstance(error, KnnmtError):
        log_failure(_log, error)
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def log_failure(log: logging.Logger, error: BaseException) -> None:
    """Say where something failed, without the message, in which there may be text of a request."""
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
