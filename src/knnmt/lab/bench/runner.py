"""What takes part in a benchmark: base MT, systems of a store, other engines, each ready to translate."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.lab.bench.settings import OF_RETRIEVAL, BenchSettings, Sweep
from knnmt.model.checkpoint import Model
from knnmt.retrieval.live import LiveStore
from knnmt.retrieval.session import Retriever
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS, serves
from knnmt.trace import NO_TRACE, Trace
from knnmt.translate import TranslateSettings, Translator

Shared = dict[tuple[str, str], LiveStore]
"""What was opened, by the paths of stores and the names of systems."""


class Variant(NamedTuple):
    """A system of a store, or base MT, with the settings that it is timed at."""

    system: str
    settings: BenchSettings
    store: Datastore | None = None

    @property
    def c(self) -> int | None:
        """The tokens or prototypes that a source token sees; None where that means nothing, or is by sentence."""
        system = SYSTEMS.get(self.system)
        return (self.settings.c or system.defaults.c) if system is not None and system.takes_c else None

    @property
    def nprobe(self) -> int | None:
        """The lists of the FAISS index that are searched; None where there is none."""
        system = SYSTEMS.get(self.system)
        return self.settings.nprobe if system is not None and system.takes_nprobe and self.settings.index else None


class Run(Protocol):
    """Translates texts; a trace observes it if it is ours."""

    def __call__(self, texts: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
        """The translations."""
        ...


@dataclass(frozen=True)
class Runner:
    """Something that translates; `anew` makes another that shares nothing with it, whose memory can be measured."""

    variant: Variant
    run: Run
    anew: Callable[[], Run]


@dataclass(frozen=True)
class Skipped:
    """What could not be measured, and why."""

    system: str
    what: str
    why: str


def served(store: Datastore) -> list[str]:
    """The systems that a store has the arrays for."""
    return [name for name in SYSTEMS if serves(store, name)]


def variants(model: Model, store: Datastore | None, point: BenchSettings, sweep: Sweep | None) -> Iterator[Variant]:
    """The systems, at each value of a sweep that base MT knows nothing of."""
    stores = [store] if store is not None else []
    points = [point]
    if sweep is not None and sweep.name == "store":
        stores = [Datastore.open(value) for value in sweep.values]
    elif sweep is not None and sweep.name in OF_RETRIEVAL:
        points = [point.changed(sweep.name, value) for value in sweep.values]
    wanted = [name for name in point.systems if name != "base"]
    if wanted and not stores:
        raise UsageError(f"{', '.join(wanted)} cannot be timed without a store: name one (--store)")
    for opened, changed in itertools.product(stores, points):
        opened.check(model)
        for system in wanted or ([] if point.systems else served(opened)):
            if not serves(opened, system):
                raise UsageError(f"{opened.path} was built without what {system} needs: build it for that (--for)")
            if changed is points[0] or sweep is None or _takes(system, sweep.name):
                yield Variant(system, changed, opened)


def _takes(system: str, setting: str) -> bool:
    """Whether a system is another at another value of a setting."""
    described = SYSTEMS[system]
    return {"c": described.takes_c, "nprobe": described.takes_nprobe}.get(setting, True)


def runner_of(model: Model, variant: Variant, shared: Shared) -> Runner:
    """A runner of a variant; those of one system and store share the arrays, which a GPU may not hold twice."""

    def anew() -> Run:
        store = Datastore.open(variant.store.path) if variant.store is not None else None
        return run_of(model, variant._replace(store=store))

    return Runner(variant, run_of(model, variant, shared), anew)


def run_of(model: Model, variant: Variant, shared: Shared | None = None) -> Run:
    """How base MT or a system translates."""
    retriever, options = retriever_of(model, variant, shared), options_of(variant.settings)

    def run(texts: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
        translator = Translator(model, retriever=retriever, trace=trace)
        return [translation.text for translation in translator.translate(texts, options)]

    return run


def retriever_of(model: Model, variant: Variant, shared: Shared | None = None) -> Retriever | None:
    """What a variant retrieves with; None for base MT."""
    system, settings, store = variant
    if store is None:
        return None
    chosen = RetrievalSettings(
        system=system, k=settings.k, c=settings.c, weight=settings.weight, index=settings.index, nprobe=settings.nprobe
    )
    shared = {} if shared is None else shared
    place = str(store.path), system
    made = Retriever(store, model.device, chosen, live=shared.get(place))
    shared[place] = made.live
    return made


def options_of(settings: BenchSettings) -> TranslateSettings:
    """How a benchmark translates: by search alone, whatever the store has word for word."""
    return TranslateSettings(  # the engine, on lines as they are
        beam=settings.beam, batch_size=settings.batch_size, exact=False, spans=False, sentences=False
    )
