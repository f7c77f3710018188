"""The time of systems beside base MT: in one process, batch by batch in turn, so that noise hits all alike."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.lab.bench.clock import Clock, Steps, settle
from knnmt.lab.bench.engines import other_engines
from knnmt.lab.bench.first_pass import first_pass
from knnmt.lab.bench.interval import Ratio, Spread, ratio, spread
from knnmt.lab.bench.peak import Memory, peak
from knnmt.lab.bench.runner import Runner, Shared, Skipped, Variant, runner_of, variants
from knnmt.lab.bench.settings import OF_RETRIEVAL, BenchSettings, Sweep
from knnmt.model.checkpoint import Model
from knnmt.ready import want

COMPILED = 120.0  # seconds in which loops are compiled on any machine: rounds are timed with them
Progress = Callable[[str, int, int | None], None]  # the stage, the work done since the last call, the whole of it


@dataclass(frozen=True)
class Speed:
    """A system's time on some texts. Base MT has no `ratio`, another engine no `k`, `steps` and `split`.

    `ratio` is to base MT; `seconds` are of all texts, `times` those of each round; `split` is the seconds of each
    stage, in one pass of their own; `peak` is that of the longest batch; `same` counts translations that are base MT's;
    `length` is the mean in source tokens; `nprobe` is that of knn by a FAISS index; `first` is the first pass over all
    texts in seconds, without warm-up.
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
    first: float | None = None


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
        points = [settings.changed(sweep.name, value) for value in sweep.values]
    for point in points:
        some = texts if point.length is None else of_length(model, texts, point.length)
        runners = [runner_of(model, Variant("base", point), {})]
        shared: Shared = {}
        for variant in variants(model, store, point, sweep):
            try:
                runners.append(runner_of(model, variant, shared))
            except UsageError as error:  # a ranking that is too short for k, say
                skipped.append(Skipped(variant.system, f"k={variant.settings.k}", str(error)))
        if settings.engines:
            others, missing = other_engines(model, point)
            runners, skipped = runners + others, skipped + missing
        name = sweep.name if sweep is not None else "bench"
        label = f"{name}={getattr(point, name)}" if len(points) > 1 else name
        rows += interleaved(model, runners, some, progress, label)
    return rows, skipped


def usable(texts: Sequence[str], settings: BenchSettings) -> list[str]:
    """The first texts that are not empty, as many as the settings want."""
    found = list(itertools.islice((text for text in map(str.strip, texts) if text), settings.segments))
    if not found:
        raise DataError("the input has no text to translate")
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
    run once in a process of their own (`first_pass`), once to warm up, which also counts steps, and once anew on the
    longest batch, to see what memory that takes; after it, once more to see where the time goes.
    """
    point, device = runners[0].variant.settings, model.device
    lengths = {text: len(ids) for text, ids in zip(texts, model.tokenizer.encode_source(list(texts)), strict=True)}
    ordered = sorted(texts, key=lambda text: -lengths[text])
    batches = [ordered[at : at + point.batch_size] for at in range(0, len(ordered), point.batch_size)]
    total = len(runners) * (1 + len(batches) * (point.pairs + 2 + point.first_pass))

    def advance(count: int = 1) -> None:
        if progress is not None:
            progress(label, count, total)

    firsts: list[float | None] = [None] * len(runners)
    for number, runner in enumerate(runners if point.first_pass else ()):
        firsts[number] = first_pass(model, runner.variant, batches)
        advance(len(batches))
    want(COMPILED)
    peaks, counts, outputs, splits = [], [], [], []
    for runner in runners:
        found: list[str] = []
        steps = Steps()
        for batch in batches:
            found += runner.run(batch, steps)
            advance()
        outputs.append(found)
        counts.append(len(steps.sentences))
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
        clock = Clock(device)
        for batch in batches:
            runner.run(batch, clock)
            advance()
        splits.append(dict(clock.seconds))
    mean_length = statistics.fmean(lengths[text] for text in texts)
    rows = []
    for number, variant in enumerate(runner.variant for runner in runners):
        spent = spread(seconds[number])
        rows.append(
            Speed(
                system=variant.system,
                k=variant.settings.k if variant.store is not None else None,
                c=variant.c,
                beam=variant.settings.beam,
                batch_size=variant.settings.batch_size,
                length=mean_length,
                entries=variant.store.sizes["entries"] if variant.store is not None else None,
                ratio=ratio(seconds[number], seconds[0]) if number else None,
                seconds=spent,
                per_second=len(texts) / spent.median,
                segments=len(texts),
                same=sum(mine == theirs for mine, theirs in zip(outputs[number], outputs[0], strict=True)),
                steps=counts[number],
                split=splits[number],
                peak=peaks[number],
                times=seconds[number],
                nprobe=variant.nprobe,
                first=firsts[number],
            )
        )
    return rows
