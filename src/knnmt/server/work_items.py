"""Work that waits for the model's thread: texts to translate, and functions to call in between."""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knnmt.errors import DataError, KnnmtError
from knnmt.server.failures import log_failure, unwritable
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline
from knnmt.translate import Translation, Translator
from knnmt.translate.result import concatenated

_log = logging.getLogger(__name__)

CHARACTERS = 3  # per token, of the embedded models: others have up to four
STOPPING = "the server is shutting down"
OVERLOADED = "the queue is full: try again later"


@dataclass(frozen=True)
class DecodingOptions:
    """What requests must have in common to be translated in one batch."""

    system: str | None = None  # None: the server's default
    weight: float | None = None  # λ
    beam: int = 5
    n_best: int = 1
    evidence: bool = False
    glossary: Glossary | None = None


class UnavailableError(Exception):
    """The queue is full, or the server is shutting down; `retry_after` is in seconds."""

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(eq=False)
class TextRequest:
    """The texts of one request, cut into units that fit the model. It may take several batches to translate them."""

    translator: Translator
    options: DecodingOptions
    texts: Sequence[Inline]
    limited: bool = True  # whether the limit of tokens applies
    future: "Future[list[Translation]]" = field(default_factory=Future)
    units: list[Inline] = field(default_factory=list)  # the texts; those too long for the model in pieces
    sizes: list[int] = field(default_factory=list)  # tokens of each unit; empty until `cut`
    pieces: list[int] = field(default_factory=list)  # units of each text
    translations: list[Translation] = field(default_factory=list)  # of the first units
    tokens: float = 0.0  # of the units that are left; an estimate until `cut`
    submitted: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.tokens = sum(len(text.text) for text in self.texts) / CHARACTERS

    @property
    def begin(self) -> int:
        """The first unit that is not translated yet."""
        return len(self.translations)

    @property
    def texts_done(self) -> int:
        """How many texts are translated."""
        units = itertools.accumulate(self.pieces)
        return sum(1 for _ in itertools.takewhile(lambda end: end <= self.begin, units))

    def batches_with(self, other: "TextRequest") -> bool:
        """Whether it can be translated in one batch with another."""
        return self.translator is other.translator and self.options == other.options

    def cut(self, max_tokens: int) -> None:
        """Count tokens, and cut texts that are too long for the model into pieces, unless they have inline codes."""
        translator = self.translator
        sizes = translator.sizes([text.text for text in self.texts])
        if self.limited and sum(sizes) > max_tokens:
            raise DataError(f"Invalid request: request ({sum(sizes)}) exceeds text limit ({max_tokens}) of tokens")
        longest = translator.model.max_source
        pieces = [
            list(map(Inline.plain, translator.pieces(text.text))) if size > longest and not text.codes else [text]
            for text, size in zip(self.texts, sizes, strict=True)
        ]
        self.pieces, self.units = list(map(len, pieces)), list(itertools.chain.from_iterable(pieces))
        same = len(self.units) == len(sizes)
        self.sizes = sizes if same else translator.sizes([unit.text for unit in self.units])
        self.tokens = sum(self.sizes)

    def fitting(self, room: int, *, at_least_one: bool) -> int:
        """The end of the next units whose tokens fit into `room`."""
        end = self.begin
        while end < len(self.units) and (self.sizes[end] <= room or (at_least_one and end == self.begin)):
            room -= self.sizes[end]
            end += 1
        return end

    def extend(self, translations: Sequence[Translation]) -> bool:
        """Take the translations of the next units; answer the request if they were the last, and return whether."""
        self.translations += translations
        self.tokens = sum(self.sizes[self.begin :])
        if self.begin < len(self.units):
            return False
        rest = iter(self.translations)
        answer(self.future, [concatenated(list(itertools.islice(rest, count))) for count in self.pieces])
        return True


@dataclass(eq=False)
class Call:
    """A function for the model's thread to call. store: the one that it changes; None if it may be any."""

    function: Callable[[], Any]
    store: Path | None = None
    future: "Future[Any]" = field(default_factory=Future)

    def concerns(self, request: TextRequest) -> bool:
        """Whether a request may be translated differently after the call."""
        searched = request.translator.store
        return self.store is None or (searched is not None and self.store in (each.path for each in searched.stores))

    def run(self) -> None:
        """Call the function, unless whoever asked has given up."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            answer(self.future, self.function())
        except Exception as error:
            fail(self.future, error)


@dataclass
class BatchClock:
    """When a batch started, when it last got the model to itself, and how long others had the model meanwhile."""

    turn: float  # seconds the batch may run before the next interruption
    minimum: float  # seconds between two interruptions
    started: float = field(default_factory=time.monotonic)
    resumed: float = field(default_factory=time.monotonic)
    lent: float = 0.0

    def lend(self, since: float) -> None:
        """Others had the model since then: give the batch as long a turn."""
        self.resumed = time.monotonic()
        self.turn = max(self.minimum, self.resumed - since)
        self.lent += self.resumed - since


Slice = tuple[TextRequest, int]
"""A request, and the end of those of its units that are in a batch."""


def answer(future: "Future[Any]", result: object) -> None:
    """Set a result, unless whoever asked has given up."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(result)


def fail(future: "Future[Any]", error: Exception) -> None:
    """Set an error, and log it if it is a bug; of a disk that cannot be written to, whoever asked tells."""
    if not isinstance(error, KnnmtError) and unwritable(error) is None:
        log_failure(_log, error)
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def refuse(future: "Future[Any]", reason: str = STOPPING, retry_after: int = 5) -> None:
    """Say that the server is shutting down, or overloaded."""
    with contextlib.suppress(InvalidStateError):
        future.set_exception(UnavailableError(reason, retry_after))
