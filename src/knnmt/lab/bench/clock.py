"""Where the time of a translation goes: a clock that is put into the product's own calls for a while."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from knnmt import translate
from knnmt.model.transformer import Transformer
from knnmt.retrieval.session import Retriever, SentenceLookup

STAGES = ("text", "encode", "select", "decode", "lookup", "combine")


def settle(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Seconds by stage. Only one stage runs at a time, the innermost, so that they add up to the whole."""

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.now = device, now
        self.seconds: dict[str, float] = defaultdict(float)
        self._stage, self._since = "", 0.0

    def _hand_on(self, stage: str) -> None:
        settle(self.device)
        now = self.now()
        if self._stage:
            self.seconds[self._stage] += now - self._since
        self._stage, self._since = stage, now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs inside, less the stages inside that."""
        outer = self._stage
        self._hand_on(name)
        try:
            yield
        finally:
            self._hand_on(outer)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed as a stage."""

        def run(*given: Any, **named: Any) -> Any:
            with self.stage(name):
                return function(*given, **named)

        return run


@contextmanager
def split(device: torch.device) -> Iterator[Clock]:
    """Time all translations inside by stage: `select` is what a sentence costs once, `lookup` what a step does.

    On a GPU the clock waits for each stage to end, which makes the whole slower: ratios are measured without it.
    """
    clock = Clock(device)
    places: list[tuple[Any, str, str]] = [
        (translate.Translator, "translate", "text"),
        (Transformer, "encode", "encode"),
        (Retriever, "look", "select"),
        (translate, "search", "decode"),
        (SentenceLookup, "mix", "combine"),
        (SentenceLookup, "keep", "lookup"),
        (SentenceLookup, "neighbours", "lookup"),
        (SentenceLookup, "heard", "lookup"),
    ]
    with ExitStack() as stack:
        for owner, name, stage in places:
            stack.enter_context(replaced(owner, name, clock.timed(stage, getattr(owner, name))))
        yield clock


@contextmanager
def steps() -> Iterator[list[int]]:
    """Count decoding steps: the list gets the number of sentences of each."""
    found: list[int] = []
    original = Transformer.step

    def step(self: Transformer, tokens: Any, *given: Any) -> Any:
        found.append(len(tokens))
        return original(self, tokens, *given)

    with replaced(Transformer, "step", step):
        yield found


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have another value in a class or a module for a while."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
