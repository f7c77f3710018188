"""The time of systems beside base MT: in one process, batch by batch in turn, so that noise hits all alike."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.lab.bench.clock import settle, split, steps
from knnmt.lab.bench.interval import Ratio, Spread, ratio, spread
from knnmt.lab.bench.settings import OF_RETRIEVAL, BenchSettings, Sweep
from knnmt.memory import Memory, peak
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import SYSTEMS, Retriever, require_system
from knnmt.retrieval.tensors import Tensors
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import TranslateSettings, Translator

Run = Callable[[list[str]], list[str]]
Progress = Callable[[str, int, int | None], None]  # the stage, the work done since the last call, the whole of it

BY_C = ("similar", "fast", "proto")  # the systems that c means something to


class Variant(NamedTuple):
    """A system of a store, or base MT, with the settings that it is timed at."""

    system: str
    settings: BenchSettings
    store: Datastore | None = None


@dataclass(frozen=True)
class Runner:
    """Something that translates; `anew` makes another that shares nothing with it, whose memory can be measured."""

    variant: Variant
    run: Run
    anew: Callable[[], Run]


@dataclass(frozen=True)
class Speed:
    """A system's time on some texts. Base MT has no `ratio`, a yardstick no `k`, `steps` and `split`.

    `ratio` is to base MT; `seconds` are of all texts, `times` those of each round; `split` is the seconds of each
    stage, in one pass of their own; `peak` is that of the longest batch; `same` counts translations that are base MT's;
    `length` is the mean in source tokens; `nprobe` is that of knn by a FAISS index.
    """

    system: str
    k: int | None
    c: int | None
    beam: int
    batch_size: int
    length: float
    entries: int | None
    ratio: Ratio | None
    seconds: Spread
    per_second: float
    segments: int
    same: int
    steps: int
    split: dict[str, float]
    peak: Memory
    times: list[float]
    nprobe: int | None = None


@dataclass(frozen=True)
class Skipped:
    """What could not be measured, and why."""

    system: str
    what: str
    why: str


def measure(
    model: Model,
    store: Datastore | None,
    texts: Sequence[str],
    settings: BenchSettings,
    sweep: Sweep | None = None,
    progress: Progress | None = None,
) -> tuple[list[Speed], list[Skipped]]:
    """Time base MT and the systems of a store on texts, at the settings or at every value of a sweep over one."""
    texts = usable(texts, settings)
    rows: list[Speed] = []
    skipped: list[Skipped] = []
    points = [settings]
    if sweep is not None and sweep.name not in OF_RETRIEVAL:
        points = [_changed(settings, sweep.name, value) for value in sweep.values]
    for point in points:
        some = texts if point.length is None else of_length(model, texts, point.length)
        runners = [_runner(model, Variant("base", point), {})]
        shared: dict[tuple[str, str], Tensors] = {}
        for variant in _variants(model, store, point, sweep):
            try:
                runners.append(_runner(model, variant, shared))
            except UsageError as error:  # a ranking that is too short for k, say
                skipped.append(Skipped(variant.system, f"k={variant.settings.k}", str(error)))
        if settings.yardsticks:
            from knnmt.lab.bench.yardsticks import yardsticks

            others, missing = yardsticks(model, point)
            runners, skipped = runners + others, skipped + missing
        name = sweep.name if sweep is not None else "bench"
        label = f"{name}={getattr(point, name)}" if len(points) > 1 else name
        rows += interleaved(model, runners, some, progress, label)
    return rows, skipped


def usable(texts: Sequence[str], settings: BenchSettings) -> list[str]:
    """The first texts that are not empty, as many as the settings want."""
    found = list(itertools.islice((text for text in map(str.strip, texts) if text), settings.segments))
    if not found:
        raise DataError("there is no text to translate in the input")
    return found


def of_length(model: Model, texts: Sequence[str], length: int) -> list[str]:
    """As many texts of about `length` source tokens each, from the words of the texts in their order."""
    if length > model.max_source:
        raise UsageError(f"texts of {length} tokens cannot be timed: the model takes {model.max_source}")
    words = [word for text in texts for word in text.split()]
    sizes = [len(ids) - 1 for ids in model.tokenizer.encode_source(words)]  # less the end
    stream = itertools.cycle(zip(words, sizes, strict=True))
    found = []
    for _ in texts:
        room = length - 1
        chosen: list[str] = []
        for word, size in stream:  # the one that no longer fits is left out
            if size > room and chosen:
                break
            chosen.append(word)
            room -= size
        found.append(" ".join(chosen))
    return found


def served(store: Datastore) -> list[str]:
    """The systems that a store has the arrays for."""
    return [name for name in SYSTEMS if _serves(store, name)]


def _serves(store: Datastore, system: str) -> bool:
    names = require_system(system).arrays
    return all(map(store.provides, names))


def _changed(settings: BenchSettings, name: str, value: object) -> BenchSettings:
    return BenchSettings.model_validate(settings.model_dump(by_alias=True) | {name: value})


def _variants(model: Model, store: Datastore | None, point: BenchSettings, sweep: Sweep | None) -> Iterator[Variant]:
    """The systems, at each value of a sweep that base MT knows nothing of."""
    stores = [store] if store is not None else []
    points = [point]
    if sweep is not None and sweep.name == "store":
        stores = [Datastore.open(value) for value in sweep.values]
    elif sweep is not None and sweep.name in OF_RETRIEVAL:
        points = [_changed(point, sweep.name, value) for value in sweep.values]
    wanted = [name for name in point.systems if name != "base"]
    if wanted and not stores:
        raise UsageError(f"{', '.join(wanted)} cannot be timed without a store: name one (--store)")
    for opened, changed in itertools.product(stores, points):
        opened.check(model)
        for system in wanted or ([] if point.systems else served(opened)):
            if not _serves(opened, system):
                raise UsageError(f"{opened.path} was built without what {system} needs: build it for that (--for)")
            if changed is points[0] or sweep is None or _means_something(sweep.name, system):
                yield Variant(system, changed, opened)


def _means_something(setting: str, system: str) -> bool:
    """Whether a system is another at another value of a setting."""
    return {"c": system in BY_C, "nprobe": system == "knn"}.get(setting, True)


def _runner(model: Model, variant: Variant, shared: dict[tuple[str, str], Tensors]) -> Runner:
    """A translator of a variant; those of one system and store share the arrays, which a GPU may not hold twice."""
    _, settings, store = variant

    def anew() -> Run:
        opened = Datastore.open(store.path) if store is not None else None
        return _run(translator(model, variant._replace(store=opened)), settings)

    made = translator(model, variant, shared)
    return Runner(variant, _run(made, settings), anew)


def translator(model: Model, variant: Variant, shared: dict[tuple[str, str], Tensors] | None = None) -> Translator:
    """What translates as a variant says."""
    made, (system, settings, store) = Translator(model), variant
    if store is not None:
        chosen = RetrievalSettings(
            system=system, k=settings.k, c=settings.c, weight=settings.weight, index=settings.index,
            nprobe=settings.nprobe,
        )  # fmt: skip
        shared = {} if shared is None else shared
        place = str(store.path), system
        made.retriever = Retriever(store, model.device, chosen, tensors=shared.get(place))
        shared[place] = made.retriever.tensors
    return made


def _run(made: Translator, settings: BenchSettings) -> Run:
    options = TranslateSettings(beam=settings.beam, batch_size=settings.batch_size, exact=False)
    return lambda texts: [translation.text for translation in made.translate(texts, options)]


def interleaved(
    model: Model,
    runners: Sequence[Runner],
    texts: Sequence[str],
    progress: Progress | None = None,
    label: str = "bench",
    now: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Time runners on texts, the first of them being what the others are compared with.

    Each batch is translated by all of them before the next is, in an order that moves on every time. Before that, all
    run once to warm up, which also counts steps, and once anew on the longest batch, to see what memory that takes;
    after it, once more to see where the time goes.
    """
    point, device = runners[0].variant.settings, model.device
    lengths = {text: len(ids) for text, ids in zip(texts, model.tokenizer.encode_source(list(texts)), strict=True)}
    ordered = sorted(texts, key=lambda text: -lengths[text])
    batches = [ordered[at : at + point.batch_size] for at in range(0, len(ordered), point.batch_size)]
    total = len(runners) * (1 + len(batches) * (point.pairs + 2))

    def advance() -> None:
        if progress is not None:
            progress(label, 1, total)

    peaks, counts, outputs, splits = [], [], [], []
    for runner in runners:
        found: list[str] = []
        with steps() as counted:
            for batch in batches:
                found += runner.run(batch)
                advance()
        outputs.append(found)
        counts.append(len(counted))
    for runner in runners:
        with peak(device) as memory:
            runner.anew()(batches[0])
        peaks.append(memory)
        advance()
    seconds = [[0.0] * point.pairs for _ in runners]
    for turn in range(point.pairs):
        for number, batch in enumerate(batches):
            shift = (turn + number) % len(runners)
            for which in (*range(shift, len(runners)), *range(shift)):
                settle(device)
                began = now()
                runners[which].run(batch)
                settle(device)
                seconds[which][turn] += now() - began
                advance()
    for runner in runners:
        with split(device) as clock:
            for batch in batches:
                runner.run(batch)
                advance()
        splits.append(dict(clock.seconds))
    mean_length = statistics.fmean(lengths[text] for text in texts)
    rows = []
    for number, (system, settings, store) in enumerate(runner.variant for runner in runners):
        spent = spread(seconds[number])
        rows.append(
            Speed(
                system=system,
                k=settings.k if store is not None else None,
                c=RetrievalSettings(system=system, c=settings.c).seen if system in BY_C else None,
                beam=settings.beam,
                batch_size=settings.batch_size,
                length=mean_length,
                entries=store.sizes["entries"] if store is not None else None,
                ratio=ratio(seconds[number], seconds[0]) if number else None,
                seconds=spent,
                per_second=len(texts) / spent.median,
                segments=len(texts),
                same=sum(mine == theirs for mine, theirs in zip(outputs[number], outputs[0], strict=True)),
                steps=counts[number],
                split=splits[number],
                peak=peaks[number],
                times=seconds[number],
                nprobe=settings.nprobe if system == "knn" and settings.index else None,
            )
        )
    return rows
