"""The thread that owns the model: it takes requests in order, and translates in one batch what fits together.

Requests queue up while it works, so that the next batch is as large as it may be. No request blocks the others for
long:

* A text that is too long for the model is cut into pieces. A request larger than a batch is served in slices, with
  other requests in between.
* A batch takes about `SECONDS`, going by recent throughput. Small requests share no batch with large ones, unless more
  waits than a batch holds: then full batches get all of it done sooner. They never share one with slices.
* A batch that runs longer is interrupted between two decoding steps to serve small requests (`_interrupt`), and is
  cancelled there if every client has left.

Nothing overtakes a call that teaches its store: what was queued after a lesson is translated after it.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from knnmt.allocator import hold_little, trim
from knnmt.errors import KnnmtError
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.work_items import (
    OVERLOADED,
    STOPPING,
    BatchClock,
    Call,
    DecodingOptions,
    Slice,
    TextRequest,
    UnavailableError,
    fail,
    refuse,
)
from knnmt.text.inline import Inline
from knnmt.translate import TranslateSettings, Translation, Translator

_log = logging.getLogger(__name__)
T = TypeVar("T")

TRIM_INTERVAL = 10.0  # seconds between returning freed memory to the system
PATIENCE = 5  # times `gather`: the longest a batch waits while requests keep joining it
SECONDS = 1.5  # target duration of a batch
UNMEASURED = 256  # tokens in a batch before throughput is known
MINIMUM = 512  # tokens in a batch however slow the model is: batches of a text or two would make it slower still
ASSUMED = 1 / 400  # seconds per token before throughput is known: a small model on one core
SMALL = 4  # a request is small if this many fit into a batch
TURN = 0.5  # seconds a batch that takes longer than `SECONDS` runs between two interruptions
MAX_DEPTH = 3  # batches interrupted at a time, one inside the other
LARGE = 32 << 20  # bytes: the scores of a step of 64 sentences are fewer, and would cost a page fault for every 4 KiB
GRACE = 4.0  # seconds to finish what is running when the server stops


class Worker:
    """Owns all translators: after `start`, only its thread may use them. Each request brings its own."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._queue: deque[TextRequest | Call] = deque()
        self._urgent: deque[Call] = deque()
        self._changed = threading.Condition()
        self._stopping = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._pace = 0.0  # seconds per token of large batches, a running mean
        self._depth = 0  # batches that are interrupted
        self._active: float | None = None  # time of the last sign of life; None while idle

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = GRACE) -> None:
        """Refuse new work, finish what can be finished in so many seconds, and end the thread."""
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
        """Refuse new work and all that is queued, and end the thread after the current step."""
        with self._changed:
            self._stopping = self._abandoned = True
            waiting = [*self._urgent, *self._queue]
            self._urgent.clear()
            self._queue.clear()
            self._changed.notify_all()
        for item in waiting:
            refuse(item.future)

    @property
    def trouble(self) -> str | None:
        """Why it accepts no requests, or makes no progress; None if all is well."""
        if self._stopping or not self._thread.is_alive():
            return STOPPING
        active = self._active
        idle = 0.0 if active is None else time.monotonic() - active
        if idle <= self._settings.time_limit:
            return None
        return f"the model is stuck: no progress for {idle:.0f} seconds; restart the server"

    # ------------------------------------------------------------------------------------- for the event loop

    async def translate(
        self, translator: Translator, texts: Sequence[str | Inline], options: DecodingOptions
    ) -> list[Translation]:
        """Translate texts, batched with other requests. TimeoutError after the time limit."""
        if not texts:
            return []
        units = [text if isinstance(text, Inline) else Inline.plain(text) for text in texts]
        return await self._wait(self._submit(TextRequest(translator, options, units)))

    async def call(self, function: Callable[[], T], store: Path | None = None) -> T:
        """Call a function in the model's thread, in queue order: what is queued later waits for it, if it searches the
        store that the function changes."""
        return await self._wait(self._submit(Call(function, store)))

    async def call_soon(self, function: Callable[[], T]) -> T:
        """Call a short function in the model's thread, ahead of the queue."""
        call = Call(function)
        with self._changed:
            if self._abandoned or not self._thread.is_alive():
                raise UnavailableError(STOPPING, 5)
            self._urgent.append(call)
            self._changed.notify_all()
        return await self._wait(call.future)

    def translate_blocking(self, request: TextRequest) -> list[Translation]:
        """`translate` for another thread, which waits however long the queue is, or until the request is cancelled."""
        self._submit(request, bounded=False)
        return request.future.result()

    def call_blocking(self, function: Callable[[], T], store: Path | None = None) -> T:
        """`call` for another thread, which waits however long the queue is."""
        call = Call(function, store)
        self._submit(call, bounded=False)
        result: T = call.future.result()
        return result

    async def _wait(self, future: "Future[T]") -> T:
        """Wait for a result; cancel it on timeout, so that the thread skips it."""
        return await asyncio.wait_for(asyncio.wrap_future(future), self._settings.time_limit)

    def _submit(self, item: TextRequest | Call, *, bounded: bool = True) -> "Future[Any]":
        with self._changed:
            if self._stopping:
                raise UnavailableError(STOPPING, 5)
            wait = self._queued_tokens() * (self._pace or ASSUMED)
            if bounded and (len(self._queue) >= self._settings.queue or self._too_long(wait)):
                raise UnavailableError(OVERLOADED, _retry_after(wait))
            self._put(item)
        return item.future

    def _too_long(self, wait: float) -> bool:
        """Whether a request should not wait for so many seconds: the estimate may be wrong by a factor of two."""
        return 2 * wait > self._settings.time_limit

    def _queued_tokens(self) -> float:
        """Tokens to translate before a new request gets its turn: at most one batch of each request."""
        room = self._room(0)
        return sum(min(item.tokens, room) for item in self._queue if isinstance(item, TextRequest))

    def _put(self, item: TextRequest | Call, *, first: bool = False) -> None:
        """Queue an item; the caller holds the lock."""
        (self._queue.appendleft if first else self._queue.append)(item)
        self._metrics.waiting.set(len(self._queue))
        self._changed.notify_all()

    def _room(self, depth: int) -> int:
        """Tokens that fit into a batch at this depth of interruption: what takes about `SECONDS`, less the deeper."""
        measured = max(MINIMUM, int(SECONDS / self._pace)) if self._pace else UNMEASURED
        return max(1, min(self._settings.batch_tokens, measured) // int(SMALL**depth))

    # ------------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        hold_little(LARGE)
        trimmed = time.monotonic()
        while (item := self._next()) is not None:
            if isinstance(item, Call):
                item.run()
            else:
                self._translate(self._gather(item))
                self._shed()
            if time.monotonic() - trimmed > TRIM_INTERVAL:
                trim()  # batches of many sizes fragment the heap
                trimmed = time.monotonic()

    def _next(self) -> TextRequest | Call | None:
        with self._changed:
            while not self._queue and not self._urgent:
                self._active = None
                if self._stopping:
                    return None
                self._changed.wait()
            self._active = time.monotonic()
            return self._urgent.popleft() if self._urgent else self._take(0)

    def _take(self, index: int) -> TextRequest | Call:
        item = self._queue[index]
        del self._queue[index]
        self._metrics.waiting.set(len(self._queue))
        return item

    def _gather(self, first: TextRequest) -> list[Slice]:
        """A batch: `first`, and what can be translated with it, queued now or arriving within `gather`."""
        whole, small = self._room(self._depth), self._room(self._depth + 1)
        room, batch = whole, list[Slice]()
        if not self._prepared(first):
            return batch
        with self._changed:
            crowded = not self._depth and first.tokens + self._queued_tokens() > whole

        def fits(request: TextRequest) -> bool:
            """Whether it has the same translator and options, and is small or large like the first; in a crowd, whether
            both fit into a batch."""
            alike = (request.tokens <= small) == (first.tokens <= small)
            fit = max(request.tokens, first.tokens) <= whole
            return request.batches_with(first) and ((alike and not self._depth) or (fit and (alike or crowded)))

        until = time.monotonic() + PATIENCE * self._settings.gather
        request: TextRequest | None = first
        while request is not None:
            room = self._add_slice(request, batch, room)
            request = self._find(fits, until) if room > 0 else None
        return batch

    def _find(self, wanted: Callable[[TextRequest], bool], until: float) -> TextRequest | None:
        """The next such request, queued now or arriving in time; none that would overtake a call that concerns it."""
        while (request := self._find_queued(wanted, until)) is not None:
            if self._prepared(request):
                if wanted(request):  # asked again, now that its size is known
                    return request
                with self._changed:
                    self._put(request, first=True)
        return None

    def _find_queued(self, wanted: Callable[[TextRequest], bool], until: float) -> TextRequest | None:
        with self._changed:
            while True:
                calls: list[Call] = []
                for index, item in enumerate(self._queue):
                    if isinstance(item, Call):
                        calls.append(item)
                    elif wanted(item) and not any(call.concerns(item) for call in calls):
                        self._take(index)
                        return item
                patience = min(self._settings.gather, until - time.monotonic())
                if self._stopping or patience <= 0 or not self._changed.wait(patience):
                    return None

    def _prepared(self, request: TextRequest) -> bool:
        """Cut a request into units, and say whether it is to be translated at all."""
        if request.future.cancelled():
            return False
        try:
            if not request.sizes:
                request.cut(self._settings.max_tokens)
        except Exception as error:
            fail(request.future, error)
            return False
        return True

    def _add_slice(self, request: TextRequest, batch: list[Slice], room: int) -> int:
        """Add the units that fit (at least one, if the batch is empty), and return the room that is left."""
        end = request.fitting(room, at_least_one=not batch)
        if end == request.begin:
            with self._changed:
                self._put(request, first=True)  # it starts the next batch
            return 0
        batch.append((request, end))
        return room - sum(request.sizes[request.begin : end]) if end == len(request.units) else 0

    def _translate(self, batch: list[Slice]) -> None:
        if not batch:
            return
        translator, options, clock = batch[0][0].translator, batch[0][0].options, BatchClock(SECONDS, TURN)
        texts = [text for request, end in batch for text in request.units[request.begin : end]]
        try:
            if not self._depth:  # an interrupted batch resumes with the store it started with
                _refresh(translator)
            if options.system is not None or options.weight is not None:
                translator = translator.using(system=options.system, weight=options.weight)
            rounds = math.ceil(len(texts) / self._settings.batch_size)  # of equal size: a small last one is inefficient
            settings = TranslateSettings(
                beam=options.beam,
                n_best=options.n_best,
                evidence=options.evidence,
                batch_size=math.ceil(len(texts) / rounds),
                stop_loops=True,
            )
            found = translator.translate_inline(
                texts, settings, between=lambda: self._between(batch, clock), glossary=options.glossary
            )
        except _CancelledError:
            for request, _ in batch:
                refuse(request.future)
            return
        except Exception as error:
            if len(batch) == 1:
                fail(batch[0][0].future, error)
            else:
                for one in batch:  # one by one, so that only the culprit fails
                    self._translate([one])
            return
        tokens = sum(sum(request.sizes[request.begin : end]) for request, end in batch)
        self._measure(len(batch), len(texts), tokens, time.monotonic() - clock.started - clock.lent)
        self._hand_out(batch, found)

    def _between(self, batch: list[Slice], clock: BatchClock) -> None:
        """Between two decoding steps: cancel the batch if nobody waits for it, or serve others if their turn is due."""
        self._active = now = time.monotonic()
        if self._abandoned or all(request.future.cancelled() for request, _ in batch):
            raise _CancelledError
        if self._urgent:
            self._urgent.popleft().run()
            clock.lend(now)
        elif self._queue and self._depth < MAX_DEPTH and now - clock.resumed >= clock.turn:
            self._interrupt(clock)

    def _interrupt(self, clock: BatchClock) -> None:
        """Translate small requests while a batch waits."""
        since = time.monotonic()
        self._depth += 1
        try:
            room = self._room(self._depth)
            if (first := self._find(lambda request: request.tokens <= room, since)) is not None:
                self._translate(self._gather(first))
                clock.lend(since)
        finally:
            self._depth -= 1

    def _hand_out(self, batch: list[Slice], translations: list[Translation]) -> None:
        at = 0
        for request, end in batch:
            size = end - request.begin
            done = request.extend(translations[at : at + size])
            at += size
            if not done and not request.future.cancelled():
                with self._changed:
                    self._put(request)  # behind what arrived meanwhile

    def _shed(self) -> None:
        """Refuse requests that would time out in the queue, and those that would not be accepted now: they came before
        it was known how long a batch takes, or before it took so long. They are told early, not when time is up."""
        late: list[TextRequest] = []
        with self._changed:
            ahead, now, room = 0.0, time.monotonic(), self._room(0)
            for item in self._queue:
                if not isinstance(item, TextRequest):
                    continue
                due, wait = item.submitted + self._settings.time_limit, ahead * self._pace
                late_or_long = now + wait + item.tokens * self._pace > due or self._too_long(wait)
                if item.limited and not item.begin and late_or_long:
                    late.append(item)
                else:
                    ahead += min(item.tokens, room)
            for item in late:
                self._queue.remove(item)
            self._metrics.waiting.set(len(self._queue))
        for item in late:
            refuse(item.future, OVERLOADED, _retry_after(ahead * self._pace))

    def _measure(self, requests: int, segments: int, tokens: int, seconds: float) -> None:
        metrics = self._metrics
        metrics.batch_requests.observe(requests)
        metrics.batch_segments.observe(segments)
        metrics.tokens.inc(tokens)
        metrics.busy.inc(seconds)
        if 2 * tokens >= self._room(0):
            self._pace += (0.3 if self._pace else 1.0) * (seconds / tokens - self._pace)


def _refresh(translator: Translator) -> None:
    """Load what others wrote to the stores."""
    try:
        translator.refresh()
    except KnnmtError as error:  # the loaded snapshot still works
        _log.error("cannot reload the store: %s", error)


def _retry_after(wait: float) -> int:
    """Seconds after which about half of a queue of so many seconds is done."""
    return min(60, max(1, math.ceil(wait / 2)))


class _CancelledError(Exception):
    """Nobody waits for a batch any more, or the server is shutting down."""
