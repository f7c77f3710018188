"""A translator that needs no model: it marks words as translated, and knows at once what it was taught."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from knnmt.corpus import Segment
from knnmt.errors import DataError, StoreError, UsageError
from knnmt.evidence import Neighbour, TokenEvidence
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.work_items import DecodingOptions
from knnmt.server.worker import Worker
from knnmt.store.digests import one_line
from knnmt.store.numbering import Match
from knnmt.store.store import Added
from knnmt.text.carry import Languages
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline
from knnmt.text.words import Link, Pair, diagonal
from knnmt.translate import TranslateSettings, Translation, Translator
from knnmt.translate.pieces import pieces_of
from knnmt.translate.pipeline import Pipeline

LONGEST = 100  # words of a segment that can be taught


class Store:
    """Segments in memory, with the names that a store on disk has."""

    def __init__(self, path: str = "project") -> None:
        self.path = Path(path)
        self.manifest = SimpleNamespace(languages="de-en")
        self.sizes = {"segments": 0}
        self.parts = (SimpleNamespace(provides=lambda array: False, sizes=self.sizes),)  # built for no system
        self.removed = set[int]()
        self.held: dict[str, Segment] = {}
        self.memory_names = ("project",)
        self.learns = True
        self.standin: StandIn

    def add(self, segments: Sequence[Segment], model: Any, *, bad: Callable[[DataError], None] | None = None) -> Added:
        return self.standin.add(segments, bad=bad)

    def remove(self, ids: Sequence[str]) -> list[str]:
        return self.standin.remove(ids)

    def refresh(self) -> bool:
        return False

    @property
    def stores(self) -> "tuple[Store, ...]":
        return (self,)

    @property
    def lessons(self) -> Any:
        return SimpleNamespace(taught=self.held)

    def sealed(self) -> Iterator[tuple[int, Segment]]:
        return iter(())

    def unsealed(self) -> list[tuple[int, Segment]]:
        return list(enumerate(self.held.values()))

    @property
    def version(self) -> int:
        return hash(tuple(self.held.values()))

    def segment(self, number: int) -> Segment:
        return list(self.held.values())[number]

    def __len__(self) -> int:
        return len(self.held)

    def segments(self) -> Iterator[Segment]:
        return iter(list(self.held.values()))

    def recent(self, count: int | None = None) -> list[Segment]:
        return list(self.held.values())[::-1][:count]

    def aligner(self) -> Any:
        raise StoreError("there is no aligner")

    def matches(self, source: str) -> list[Match]:
        return [Match(0, segment) for segment in self.segments() if one_line(segment.source) == source]

    def find(self, id: str) -> Segment | None:
        return self.held.get(id)


@dataclass
class Lines:
    """What the pipeline asks for translations of lines."""

    standin: "StandIn"
    settings: TranslateSettings
    between: Callable[[], None] | None
    retrieves: bool = True
    whole: int = 0

    def translate(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Translation]:
        return self.standin.lines(texts, self.settings, self.between)

    def matches(self, text: str) -> list[Match]:
        return self.standin.store.matches(text)


class Asked(Worker):
    """A worker that is asked to translate with one translator."""

    def __init__(self, translator: Translator, settings: ServerSettings, metrics: Metrics) -> None:
        super().__init__(settings, metrics)
        self.translator = translator

    async def ask(self, texts: Sequence[str], options: DecodingOptions) -> list[Translation]:
        return await self.translate(self.translator, texts, options)


class StandIn:
    """Notes which batches it was given, and by which thread; `pause` is what each takes, `held` stops them all."""

    def __init__(self, pause: float = 0.0, store: Store | None = None) -> None:
        self.store, self.pause = Store() if store is None else store, pause
        self.store.standin = self
        self.model = SimpleNamespace(
            name="stand-in", max_source=LONGEST, tokenizer=SimpleNamespace(source="de", target="en")
        )
        self.retriever = SimpleNamespace(settings=SimpleNamespace(system="fast", weight=0.9), store=self.store)
        self.batches: list[list[str]] = []
        self.steps: dict[str, int] = {}  # that texts take, each with its pause; others take one
        self.stepped = 0
        self.threads: set[str] = set()
        self.open = threading.Event()
        self.open.set()
        self.weight: float | None = None

    def align(self, pairs: Iterable[Pair]) -> dict[Pair, list[Link]]:
        return {pair: diagonal(*pair) for pair in pairs}

    def using(self, system: str | None = None, weight: float | None = None) -> "StandIn":
        if system not in (None, "base", "fast"):
            raise UsageError(f"there is no system {system!r}: use base, fast")
        return self

    def sizes(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) + 1 for text in texts]

    def pieces(self, text: str) -> list[str]:
        return pieces_of(text, self.sizes, self.model.max_source)

    def translate_inline(
        self,
        units: Sequence[Inline],
        settings: TranslateSettings,
        *,
        between: Callable[[], None] | None = None,
        glossary: Glossary | None = None,
    ) -> list[Translation]:
        found = Pipeline(Lines(self, settings, between), self.align, Languages("de", "en")).translate(units)
        return [self._with_terms(*each, glossary) for each in zip(units, found, strict=True)] if glossary else found

    def _with_terms(self, unit: Inline, found: Translation, glossary: Glossary) -> Translation:
        """A translation that uses the terms that stand in the text as the glossary writes them."""
        text = found.text
        for term in glossary.terms:
            text = text.replace(f"{term.source}'", term.target)
        terms = glossary.report(unit.text, text, "it stands there otherwise")
        return replace(found, text=text, evidence=(), terms=terms)

    def lines(
        self, texts: Sequence[str], settings: TranslateSettings, between: Callable[[], None] | None
    ) -> list[Translation]:
        self.threads.add(threading.current_thread().name)
        self.open.wait(30)
        for _ in range(max(self.steps.get(text, 1) for text in texts)):
            if between is not None:
                between()
            self.stepped += 1
            time.sleep(self.pause)
        self.batches.append(list(texts))
        if any("explode" in text for text in texts):
            raise RuntimeError(f"a fault with {texts}")
        return [self._one(text, settings) for text in texts]

    def _one(self, text: str, settings: TranslateSettings) -> Translation:
        text.encode()
        match = {segment.source: segment for segment in self.store.segments()}.get(text)
        best = match.target if match else " ".join(f"{word}'" for word in text.split())
        others = tuple(Translation(f"{best} ({rank})", -float(rank)) for rank in range(2, settings.n_best + 1))
        near = Neighbour(0, text, "", best, "", "here", "s-1", 1.5, 1.0, self.store.memory_names[-1])
        token = TokenEvidence(best, 0.9, 0.5, 0.95, 0.8, (near,))
        return Translation(best, -0.5, (1,), others, (token,) if settings.evidence else (), match)

    def add(self, segments: Sequence[Segment], *, bad: Callable[[DataError], None] | None = None) -> Added:
        self.threads.add(threading.current_thread().name)
        fit = []
        for segment in segments:
            fault = None
            if not segment.source.strip() or not segment.target.strip():
                fault = DataError("a segment has an empty side")
            elif len(segment.source.split()) > LONGEST:
                fault = DataError("a segment is too long for the model")
            if fault is None:
                fit.append(segment)
            elif bad is None:
                raise fault
            else:
                bad(fault)
        segments = fit
        ids = tuple(segment.id or f"taught-{hash(segment.source):x}" for segment in segments)
        for name, each in zip(ids, segments, strict=True):
            self.store.held[name] = Segment(each.source, each.target, each.origin, name)
        return Added(ids, new=len(ids))

    def remove(self, ids: Sequence[str]) -> list[str]:
        return [name for name in ids if self.store.held.pop(name, None)]

    def refresh(self) -> bool:
        return False

    def as_translator(self) -> Translator:
        return cast(Translator, self)
