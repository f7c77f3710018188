"""Lines of any number on a Ray cluster: blocks of them on actors that hold a translator, given back in order.

Ray Data would not do here: it materialises blocks in its object store, has no order unless all of it is held back, and
cannot go on where an interrupted run has ended. A window of blocks on actors holds little, keeps the order, and lets
the caller note how far it has come.
"""

import contextlib
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from knnmt.cluster.connection import Cluster, ClusterSettings, connected, require_version
from knnmt.decode.settings import TranslateSettings
from knnmt.errors import DataError
from knnmt.languages import Languages
from knnmt.text.glossary import Glossary
from knnmt.translate import Translation, Translator

AHEAD = 3  # blocks for each actor: one that it translates, the next, and one that waits for its turn to be written


class TranslateWorker:
    """An actor that translates blocks of lines."""

    def __init__(
        self, version: str, device: str, precision: str, threads: int, options: Mapping[str, Any],
        settings: TranslateSettings, glossary: Path | None,
    ) -> None:  # fmt: skip
        require_version(version)
        torch.set_num_threads(threads)
        self.translator = Translator(**options, device=device, precision=precision)
        self.settings, (source, target) = settings, self.translator.languages
        languages = Languages(source, target) if source and target else None
        self.glossary = Glossary.read(glossary, languages) if glossary is not None else None

    def fingerprint(self) -> str:
        """That of the model."""
        return self.translator.model.fingerprint

    def translate(self, block: list[str]) -> list[Translation]:
        """Translate a block of lines."""
        return self.translator.translate(block, self.settings, glossary=self.glossary)


class _Block(NamedTuple):
    """Lines on their way: the number of the first, how many, and the actor that has them."""

    first: int
    size: int
    actor: Any
    result: Any


class RayTranslator:
    """Translates streams of lines on the actors of a cluster. options: arguments of `Translator`, paths absolute."""

    def __init__(
        self, cluster: Cluster, options: Mapping[str, Any], settings: TranslateSettings, glossary: Path | None
    ) -> None:
        self.cluster = cluster
        self.actors = cluster.start(TranslateWorker, cluster.settings.threads, options, settings, glossary)
        self.fingerprint = cluster.get(self.actors[0].fingerprint.remote())

    def stream(
        self, texts: Iterable[str], block: int, progress: Callable[[int], None] | None = None
    ) -> Iterator[Translation]:
        """Translate as texts come, a block at a time on each actor; in their order."""
        lines, first = iter(texts), 1
        waiting: deque[_Block] = deque()
        while True:
            while len(waiting) < AHEAD * len(self.actors) and (some := list(itertools.islice(lines, block))):
                actor = self._least_busy(waiting)
                waiting.append(_Block(first, len(some), actor, actor.translate.remote(some)))
                first += len(some)
            if not waiting:
                return
            done = waiting.popleft()
            try:
                found = self.cluster.get(done.result)
            except DataError as error:
                raise DataError(f"in lines {done.first:,} to {done.first + done.size - 1:,}: {error}") from error
            if progress is not None:
                progress(done.size)
            yield from found

    def _least_busy(self, waiting: Sequence[_Block]) -> Any:
        """The actor with the fewest blocks to do."""
        results = [block.result for block in waiting]
        left = set(self.cluster.ray.wait(results, num_returns=len(results), timeout=0)[1]) if results else set()
        busy = Counter(block.actor for block in waiting if block.result in left)
        return min(self.actors, key=lambda actor: busy[actor])


@contextlib.contextmanager
def ray_translator(
    cluster: ClusterSettings, options: Mapping[str, Any], settings: TranslateSettings, glossary: Path | None = None
) -> Iterator[RayTranslator]:
    """Translators on a cluster; the actors end with the context."""
    with connected(cluster) as joined:
        yield RayTranslator(joined, options, settings, glossary)
