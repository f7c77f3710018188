"""The one thread that owns the model: it takes requests in their order, and translates together what fits together.

While it works, requests gather; the next batch is then as large as it may be. No request makes the others wait for
long, whatever is in it:

* A text that is too long for the model is cut into pieces. A request that is larger than a batch is served in slices
  of such pieces, with a turn for the others in between.
* A batch holds what takes about `SECONDS`, as measured lately. Small requests share none with large ones.
* A batch that takes longer all the same lets small requests in between two steps of its search (`_let_in`), and ends
  there if all who wait for it have given up.

Nothing that came after a lesson is translated before it.
"""

import asyncio
import contextlib
import itertools
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

from knnmt.allocator import hold_little, trim
from knnmt.errors import DataError, KnnmtError
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.translate import TranslateSettings, Translation, Translator, join

_log = logging.getLogger(__name__)
T = TypeVar("T")

TIDY = 10.0  # seconds after which freed memory goes back to the system
PATIENCE = 5  # times `gather`: how long a batch waits at most, as long as requests keep joining it
CHARACTERS = 4  # of a token, about
SECONDS = 1.5  # that a batch should take
UNMEASURED, LEAST = 256, 128  # tokens of a batch while nobody knows how long they take, and whatever they take
SMALL = 4  # a request is small if as many of them fit into a batch
TURN = 0.5  # seconds that a batch has for itself before it lets small requests in, and again after each time
DEEPEST = 3  # batches that may wait for one another
GRACE = 4.0  # seconds that a server about to stop has for what is in hand
STOPPING = "the server is about to stop"


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


class _GivenUpError(Exception):
    """Nobody waits for a batch any more, or nobody will get it."""


@dataclass(eq=False)
class _Texts:
    """Texts that a request waits for. Its units are the texts, or pieces of them; the first of these are translated."""

    how: How
    texts: Sequence[str]
    future: "Future[list[Translation]]" = field(default_factory=Future)
    units: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of the units, in tokens; none before somebody counts
    pieces: list[int] = field(default_factory=list)  # units of each text
    found: list[Translation] = field(default_factory=list)  # of the first units
    tokens: float = 0.0  # of the other units, about

    def __post_init__(self) -> None:
        self.tokens = sum(map(len, self.texts)) / CHARACTERS

    @property
    def begin(self) -> int:
        return len(self.found)

    def joined(self) -> list[Translation]:
        """The translations of the texts."""
        rest = iter(self.found)
        return [join(list(itertools.islice(rest, count))) for count in self.pieces]


@dataclass(eq=False)
class _Call:
    """Something else to be done by the thread that owns the model."""

    function: Callable[[], Any]
    future: "Future[Any]" = field(default_factory=Future)


@dataclass
class _Clock:
    """When a batch began, when it was last by itself, and how long others had the model meanwhile."""

    begun: float = field(default_factory=time.monotonic)
    resumed: float = field(default_factory=time.monotonic)
    turn: float = TURN  # to be had before others are let in
    lent: float = 0.0

    def lend(self, since: float) -> None:
        """Others had the model since then: the batch may now have it as long."""
        self.resumed = time.monotonic()
        self.turn = max(TURN, self.resumed - since)
        self.lent += self.resumed - since


_Slice = tuple[_Texts, int]  # up to which of its units


class Worker:
    """Owns a translator: after `start`, nobody else may use it."""

    def __init__(self, translator: Translator, settings: ServerSettings, metrics: Metrics) -> None:
        self._translator, self._settings, self._metrics = translator, settings, metrics
        self._jobs: deque[_Texts | _Call] = deque()
        self._asides: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._stopping = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._pace = 0.0  # seconds a token when batches are large, as measured lately
        self._depth = 0  # batches that wait for one that they let in
        self._moved: float | None = None  # when something was last done; None while there is nothing to do

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, within: float = GRACE) -> None:
        """Take nothing more, finish what can be finished in so many seconds, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is None:
            return
        self._thread.join(within)
        if self._thread.is_alive():
            self.abandon()
            self._thread.join(GRACE)

    def abandon(self) -> None:
        """Take nothing more, tell all who wait that they get nothing, and end after the step in hand."""
        with self._changed:
            self._stopping = self._abandoned = True
            waiting = [*self._asides, *self._jobs]
            self._asides.clear()
            self._jobs.clear()
            self._changed.notify_all()
        for job in waiting:
            _refuse(job.future)

    @property
    def ready(self) -> bool:
        """Whether it takes requests, and gets on with them."""
        moved = self._moved
        stuck = moved is not None and time.monotonic() - moved > self._settings.time_limit
        return self._thread.is_alive() and not self._stopping and not stuck

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
            if self._abandoned or not self._thread.is_alive():
                raise UnavailableError(STOPPING, 5)
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
                raise UnavailableError(STOPPING, 5)
            wait = self._waiting_tokens() * self._pace
            if bounded and (len(self._jobs) >= self._settings.queue or 2 * wait > self._settings.time_limit):
                retry = min(60, max(1, math.ceil(wait / 2)))  # about half of what waits will be done by then
                raise UnavailableError("too many requests wait for the model: try again later", retry)
            self._put(job)
        return job.future

    def _waiting_tokens(self) -> float:
        """What is translated before one that comes now has its turn: of each request no more than a batch."""
        room = self._room(0)
        return sum(min(job.tokens, room) for job in self._jobs if isinstance(job, _Texts))

    def _put(self, job: _Texts | _Call, *, first: bool = False) -> None:
        """Queue a job; whoever calls this holds the lock."""
        (self._jobs.appendleft if first else self._jobs.append)(job)
        self._metrics.waiting.set(len(self._jobs))
        self._changed.notify_all()

    def _room(self, depth: int) -> int:
        """The tokens of a batch that this many others wait for: what takes about `SECONDS`, and ever less."""
        measured = max(LEAST, int(SECONDS / self._pace)) if self._pace else UNMEASURED
        return max(1, min(self._settings.batch_tokens, measured) // int(SMALL**depth))

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
                self._moved = None
                if self._stopping:
                    return None
                self._changed.wait()
            self._moved = time.monotonic()
            return self._asides.popleft() if self._asides else self._taken(0)

    def _taken(self, place: int) -> _Texts | _Call:
        job = self._jobs[place]
        del self._jobs[place]
        self._metrics.waiting.set(len(self._jobs))
        return job

    def _gather(self, first: _Texts) -> list[_Slice]:
        """A batch: `first`, and all that can be translated with it, that waits or comes within moments."""
        room, small = self._room(self._depth), self._room(self._depth + 1)
        batch: list[_Slice] = []
        if not self._opened(first):
            return batch

        def like(job: _Texts) -> bool:
            """As it is asked for, and as small, or as large."""
            whole = not self._depth or job.tokens <= self._room(self._depth)
            return job.how == first.how and whole and (job.tokens <= small) == (first.tokens <= small)

        until = time.monotonic() + PATIENCE * self._settings.gather
        job: _Texts | None = first
        while job is not None:
            room = self._slice(job, batch, room)
            job = self._find(like, until) if room > 0 else None
        return batch

    def _find(self, wanted: Callable[[_Texts], bool], until: float) -> _Texts | None:
        """The next such job, now or within moments. Nothing overtakes a call: that may be a lesson."""
        while (job := self._seen(wanted, until)) is not None:
            if self._opened(job):
                if wanted(job):  # now that it is known how large it is
                    return job
                with self._changed:
                    self._put(job, first=True)
        return None

    def _seen(self, wanted: Callable[[_Texts], bool], until: float) -> _Texts | None:
        with self._changed:
            while True:
                for place, job in enumerate(self._jobs):
                    if isinstance(job, _Call):
                        return None
                    if wanted(job):
                        self._taken(place)
                        return job
                patience = min(self._settings.gather, until - time.monotonic())
                if self._stopping or patience <= 0 or not self._changed.wait(patience):
                    return None

    def _opened(self, job: _Texts) -> bool:
        """Count the tokens of a job, and cut what is too long; whether it is to be translated at all."""
        if job.future.cancelled():
            return False
        if job.sizes:
            return True
        try:
            self._open(job)
        except Exception as error:
            _fail(job.future, error)
            return False
        return True

    def _open(self, job: _Texts) -> None:
        translator, most = self._translator, self._settings.max_tokens
        sizes = translator.sizes(job.texts)
        if sum(sizes) > most:
            raise DataError(f"Invalid request: request ({sum(sizes)}) exceeds text limit ({most}) of tokens")
        longest = translator.model.max_source
        cut = [
            translator.pieces(text) if size > longest else [text] for text, size in zip(job.texts, sizes, strict=True)
        ]
        job.pieces, job.units = [len(pieces) for pieces in cut], list(itertools.chain.from_iterable(cut))
        job.sizes = sizes if len(job.units) == len(sizes) else translator.sizes(job.units)
        job.tokens = sum(job.sizes)

    def _slice(self, job: _Texts, batch: list[_Slice], room: int) -> int:
        """Take as many of a job's units as there is room for (one, if the batch is empty); what room is left."""
        end = job.begin
        while end < len(job.units) and (job.sizes[end] <= room or (not batch and end == job.begin)):
            room -= job.sizes[end]
            end += 1
        if end == job.begin:
            with self._changed:
                self._put(job, first=True)  # it begins the next batch
            return 0
        batch.append((job, end))
        return room if end == len(job.units) else 0

    def _translate(self, batch: list[_Slice]) -> None:
        if not batch:
            return
        how, clock = batch[0][0].how, _Clock()
        texts = [text for job, end in batch for text in job.units[job.begin : end]]
        try:
            if not self._depth:  # a batch that waits goes on with what it began with
                self._refresh()
            translator = self._translator
            if how.system is not None or how.weight is not None:
                translator = translator.using(system=how.system, weight=how.weight)
            rounds = math.ceil(len(texts) / self._settings.batch_size)  # of equal size: a small last one would be dear
            size = math.ceil(len(texts) / rounds)
            settings = TranslateSettings(
                beam=how.beam, n_best=how.n_best, evidence=how.evidence, batch_size=size, stop_loops=True
            )
            found = translator.translate(texts, settings, between=lambda: self._between(batch, clock))
        except _GivenUpError:
            for job, _ in batch:
                _refuse(job.future)
            return
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0].future, error)
            else:
                for one in batch:  # so that only those fail that would have failed alone
                    self._translate([one])
            return
        tokens = sum(sum(job.sizes[job.begin : end]) for job, end in batch)
        self._measure(len(batch), len(texts), tokens, time.monotonic() - clock.begun - clock.lent)
        self._hand_out(batch, found)

    def _between(self, batch: list[_Slice], clock: _Clock) -> None:
        """Between two steps of a batch: end it if it is for nobody, and serve others if it has had its turn."""
        self._moved = now = time.monotonic()
        if self._abandoned or all(job.future.cancelled() for job, _ in batch):
            raise _GivenUpError
        if self._asides:
            self._do(self._asides.popleft())
            clock.lend(now)
        elif self._jobs and self._depth < DEEPEST and now - clock.resumed >= clock.turn:
            self._let_in(clock)

    def _let_in(self, clock: _Clock) -> None:
        """Translate small requests while a batch waits."""
        since = time.monotonic()
        self._depth += 1
        try:
            room = self._room(self._depth)
            if (first := self._find(lambda job: job.tokens <= room, since)) is not None:
                self._translate(self._gather(first))
                clock.lend(since)
        finally:
            self._depth -= 1

    def _hand_out(self, batch: list[_Slice], found: list[Translation]) -> None:
        place = 0
        for job, end in batch:
            size = end - job.begin
            job.found += found[place : place + size]
            job.tokens = sum(job.sizes[end:])
            place += size
            if end == len(job.units):
                _answer(job.future, job.joined())
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
        if 2 * tokens >= self._room(0):
            self._pace += (0.3 if self._pace else 1.0) * (seconds / tokens - self._pace)


def _answer(future: "Future[Any]", result: object) -> None:
    with contextlib.suppress(InvalidStateError):  # whoever asked has given up
        future.set_result(result)


def _fail(future: "Future[Any]", error: Exception) -> None:
    if not isinstance(error, KnnmtError):
        log_failure(_log, error)
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _refuse(future: "Future[Any]") -> None:
    """Tell whoever still waits that the server is about to stop."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(UnavailableError(STOPPING, 5))


def log_failure(log: logging.Logger, error: BaseException) -> None:
    """Say where something failed, without the message, in which there may be text of a request."""
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
