"""Where the time of a translation goes, and in how many decoding steps: two traces of the product."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from knnmt.trace import Trace

STAGES = ("text", "encode", "select", "decode", "lookup", "combine")


def settle(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock(Trace):
    """Seconds by stage. Each moment counts for the innermost stage alone, so that the stages add up to the whole.

    On a GPU the clock waits for each stage to end, which makes the whole slower: ratios are measured without it.
    """

    detailed = True

    def __init__(self, device: torch.device, now: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.now = device, now
        self.seconds: dict[str, float] = defaultdict(float)
        self._stage, self._since = "", 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs inside, less the stages nested in it."""
        outer = self._stage
        self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, stage: str) -> None:
        settle(self.device)
        now = self.now()
        if self._stage:
            self.seconds[self._stage] += now - self._since
        self._stage, self._since = stage, now


class Steps(Trace):
    """Counts decoding steps: `sentences` has the number of sentences of each."""

    def __init__(self) -> None:
        self.sentences: list[int] = []

    def step(self, sentences: int) -> None:
        """Count a step."""
        self.sentences.append(sentences)
