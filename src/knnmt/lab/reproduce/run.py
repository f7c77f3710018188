"""The steps of an experiment. Each writes its result with a digest of its inputs: if these are the same the next time,
the step is skipped, so that an experiment is resumable.
"""

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from knnmt.build import build as building
from knnmt.corpus import Languages, files_of, read_all, statistics
from knnmt.corpus.files import require_readable
from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.evaluate import bleu
from knnmt.files import checksum, write_whole
from knnmt.lab.bench.machine import machine, versions
from knnmt.lab.bench.peak import return_unused
from knnmt.lab.reproduce.config import BASE, COMPARED, TM, Config, Domain, Run
from knnmt.lab.reproduce.decompose import decompose
from knnmt.lab.reproduce.job import Job, Progress, as_json, digest_of, keep, parsed, recall, search_alone, texts_of
from knnmt.lab.reproduce.memory import translate as from_memory
from knnmt.lab.reproduce.results import (
    Built,
    Decomposition,
    DomainResults,
    Metric,
    Results,
    Scored,
    SystemResults,
    Translated,
    TunedResult,
)
from knnmt.lab.reproduce.score import compare
from knnmt.lab.reproduce.vary import vary
from knnmt.model.checkpoint import load
from knnmt.overlap import Overlaps, overlaps
from knnmt.retrieval.tuned import Tuned
from knnmt.store.describe import describe
from knnmt.store.manifest import MANIFEST
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator
from knnmt.tune.tune import tune

_log = logging.getLogger(__name__)


class _Found(BaseModel):
    """Which texts of dev and test stand in the store, and where."""

    digest: str
    dev: Overlaps
    test: Overlaps


def reproduce(
    config: Config,
    data: Path,
    out: Path,
    *,
    device: str = "auto",
    precision: str = "auto",
    only: Sequence[str] = (),
    systems: Sequence[str] = (),
    decomposed: bool = True,
    varied: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run an experiment on the corpora under `data`, or go on with one; everything it makes is in the folder `out`.

    `only` these of its domains are done, and only these `systems`, if any are named: an experiment can be done in
    pieces, side by side in other folders, that a report puts together. Without `decomposed` or `varied` it does not go
    beyond the scores, whatever the config asks for. `jobs` processes count for the scores, by default one a core.
    results.json is there after the first domain, and grows with each.
    """
    content = config.model_dump(mode="json", by_alias=True)
    beyond = {} if decomposed else {"decompose": None}
    config = config.model_copy(update=beyond if varied else beyond | {"vary": None})
    config = config.only(systems) if systems else config
    domains = [domain for domain in config.domains if not only or {domain.name, domain.variant_of} & set(only)]
    if strange := set(only) - {name for domain in domains for name in (domain.name, domain.variant_of)}:
        raise UsageError(f"there is no domain {min(strange)!r} among {', '.join(d.name for d in config.domains)}")
    for domain in domains:  # what is not there is refused before any work
        _files(config, domain, data)
    out.mkdir(parents=True, exist_ok=True)
    model = load(config.model, device=device, precision=precision, langs=config.languages)
    write_whole(out / "config.json", as_json(content))
    here = machine(model.device) | {"precision": model.transformer.precision}
    used = versions() | {"sacrebleu": version("sacrebleu")}
    languages = Languages.parse(config.languages)
    found: list[DomainResults] = []
    for domain in domains:
        dev, test = (
            list(itertools.islice(read_all([data / part], languages, identify=domain.alignments is None), most))
            for part, most in ((domain.dev, config.tune.segments), (domain.test, config.translate.segments))
        )
        if not test:
            raise DataError(f"{domain.name}: there is nothing to translate: {data / domain.test} has no segments")
        folder = out / domain.name
        for place in (folder, folder / "settings", folder / "translations"):
            place.mkdir(exist_ok=True)
        watch = progress or (lambda stage, done, total: None)
        for result in _domain(Job(config, domain, data, folder, model, dev, test, watch, jobs)):
            found = [one for one in found if one.name != domain.name] + [result]
            results = Results(
                title=config.title, note=config.note, digest=digest_of(content), config=content, machine=here,
                versions=used, domains=found,
            )  # fmt: skip
            write_whole(out / "results.json", as_json(results.model_dump(mode="json")))
    return results


def _domain(job: Job) -> Iterator[DomainResults]:
    """All of a domain: its scores, and then the same with more and more beside them."""
    built, store = _build(job)
    seen = _overlaps(job, built, store)
    translated, texts = {}, {}
    tuned: dict[str, TunedResult | None] = {BASE: None}
    settings: dict[str, Tuned] = {}
    translated[BASE], texts[BASE] = _translate(job, built, BASE, None, None)
    runs = job.config.runs(job.domain)
    for run in runs:
        if run.system == TM:
            tuned[run.name], translated[run.name], texts[run.name] = from_memory(job, translated[BASE], texts[BASE])
            continue
        settings[run.name], tuned[run.name] = _tune(job, built, store, run, seen.dev)
        translated[run.name], texts[run.name] = _translate(job, built, run.name, store, settings[run.name])
        return_unused()  # other domains may run on the same device
    compared = [name for name in (next((r.name for r in runs if r.system == one), None) for one in COMPARED) if name]
    scored = _score(job, texts, seen.test, compared)
    bytes_of = {run.name: served(store, SYSTEMS[run.system].arrays) for run in runs if run.system != TM}
    system_of = {run.name: run.system for run in runs} | {BASE: BASE}
    sides = {"dev": (job.dev, seen.dev), "test": (job.test, seen.test)}
    result = DomainResults(
        name=job.domain.name,
        title=job.domain.label,
        note=job.domain.note,
        built=built,
        overlaps={
            side: {"segments": len(some), "exact": len(found.exact), "near": len(found.near)}
            for side, (some, found) in sides.items()
        },
        systems={
            name: SystemResults(
                system=system_of[name], tuned=tuned[name], translated=translated[name], bytes=bytes_of.get(name, 0),
                metrics=scored.metrics[name], unseen=scored.unseen.get(name),
            )
            for name in texts
        },
    )  # fmt: skip
    yield result
    if (lost := _decompose(job, built, store, settings)) is not None:
        result = result.model_copy(update={"decomposition": lost})
        yield result
    if varied := vary(job, built, store, settings, seen.dev):
        yield result.model_copy(update={"varied": varied})


# ------------------------------------------------------------------------------------------------------ the steps


def _build(job: Job) -> tuple[Built, Datastore]:
    """The store of the domain's train texts."""
    model, place, path = job.model, job.folder / "store", job.folder / "build.json"
    train, links = _files(job.config, job.domain, job.data)
    settings = job.config.building(job.domain)
    files = files_of(train, Languages.parse(job.config.languages))
    digest = digest_of(
        model.fingerprint, model.tokenizer.fingerprint, model.device.type, model.transformer.precision,
        job.config.languages, settings.model_dump(mode="json"),
        [checksum(file) for file in [*files, *([links] if links is not None else [])]],
    )  # fmt: skip
    built = recall(path, Built)
    if built is not None and (place / MANIFEST).exists():
        if built.digest != digest:
            raise UsageError(
                f"{place} was made of other texts, with another model or precision, on another kind of device, or with "
                f"other settings: choose another folder for the results, or remove {job.folder}"
            )
        return built, Datastore.open(place)
    report = building.build(
        train, model, place, job.config.languages, settings, alignments=links, progress=job.watch("build,")
    )
    store = Datastore.open(place)
    described = describe(store)
    counted = statistics(_watched(job, "count", store), model.tokenizer.tokenize)
    built = Built(
        digest=digest, seconds=_rounded(report.seconds), kept=report.kept, dropped=report.dropped,
        counts=described.counts, scale=described.scale, bytes=store.manifest.size, statistics=asdict(counted),
    )  # fmt: skip
    return keep(path, built), store


def _overlaps(job: Job, built: Built, store: Datastore) -> _Found:
    """What the store has of dev and test."""
    path, digest = job.folder / "overlaps.json", digest_of(built.digest, texts_of(job.dev), texts_of(job.test))
    found = recall(path, _Found, digest)
    if found is None:
        job.watch("overlaps")("", 0, None)
        dev, test = (overlaps(store, [segment.source for segment in some]) for some in (job.dev, job.test))
        found = keep(path, _Found(digest=digest, dev=dev, test=test))
    return found


def _tune(job: Job, built: Built, store: Datastore, run: Run, own: Overlaps) -> tuple[Tuned, TunedResult]:
    """The settings of a system that translate dev best; what the store has of dev is not used for that."""
    path, plan = job.folder / "settings" / f"{run.name}.json", job.config.tune
    adapt = run.adapt or plan.adapt
    digest = digest_of(
        built.digest, run.system, run.retrieval.model_dump(mode="json"), adapt, plan.model_dump(mode="json"),
        texts_of(job.dev),
    )  # fmt: skip
    if path.exists():
        kept = parsed(path).get("tuned", {})
        if kept.get("digest") == digest:
            return Tuned.load(path), TunedResult.model_validate(kept)
        _log.info("%s is out of date: making it again", path)
    began = time.perf_counter()
    trials = tune(
        job.model, store, job.dev, run.system, adapt=adapt, decoded=plan.decoded,
        translate=TranslateSettings(beam=plan.beam, batch_size=plan.batch_size, spans=False, sentences=False),
        left_out=own.segments, given=run.retrieval.model_copy(update={"system": run.system}),
        progress=job.watch(f"tune {run.name},"),
    )  # fmt: skip
    best = trials[0]
    tuned = TunedResult(
        digest=digest, settings=best.settings.model_dump(mode="json", by_alias=True), bleu=best.bleu,
        base_bleu=next(trial.bleu for trial in trials if trial.settings.silent), segments=len(job.dev),
        ends=best.ends, trials=len(trials), seconds=round(time.perf_counter() - began, 3),
    )  # fmt: skip
    best.tuned.save(path, tuned=tuned.model_dump(mode="json"), trials=[trial.as_json() for trial in trials])
    return best.tuned, tuned


def _translate(
    job: Job, built: Built, name: str, store: Datastore | None, tuned: Tuned | None
) -> tuple[Translated, list[str]]:
    """Test, translated by a system; the clock runs after one batch, and includes selection and set-up of lookups."""
    path, plan = job.folder / "translations" / f"{name}.txt", job.config.translate
    record = path.with_suffix(".json")
    sources = [segment.source for segment in job.test]
    retrieval = tuned.settings.model_dump(mode="json") if tuned is not None else None
    if tuned is not None and tuned.gate is not None:
        retrieval = {"settings": retrieval, "gate": tuned.gate.digest}
    digest = digest_of(built.digest, retrieval, plan.model_dump(mode="json"), sources)
    kept = recall(record, Translated, digest)
    if kept is not None and path.exists():
        texts = path.read_bytes().decode().split("\n")[:-1]
        if len(texts) == len(sources):
            return kept, texts
    translator = Translator(job.model, store, retrieval=tuned)
    options = search_alone(plan.beam, plan.batch_size)
    watch = job.watch(f"translate {name}")
    watch("", 0, len(sources))
    translator.translate(sources[: plan.batch_size], options)
    began = time.perf_counter()
    found = list(translator.stream(sources, options, progress=lambda done: watch("", done, len(sources))))
    seconds = time.perf_counter() - began
    texts = [each.text.replace("\n", " ") for each in found]
    write_whole(path, "".join(text + "\n" for text in texts).encode())
    made = Translated(
        digest=digest, segments=len(texts), tokens=sum(len(each.tokens) for each in found), seconds=round(seconds, 3)
    )
    return keep(record, made), texts


def _decompose(job: Job, built: Built, store: Datastore, settings: dict[str, Tuned]) -> Decomposition | None:
    """Where Faster loses, on dev segments behind those that were tuned on."""
    count, first = job.config.decompose, job.config.tune.segments
    if count is None or first is None or "faster" not in settings:
        return None
    languages = Languages.parse(job.config.languages)
    every = read_all([job.data / job.domain.dev], languages, identify=False)
    fresh = list(itertools.islice(every, first, first + count))
    return decompose(job, built, store, settings, fresh) if fresh else None


def _score(job: Job, texts: dict[str, list[str]], seen: Overlaps, compared: list[str]) -> Scored:
    """BLEU, chrF2 and TER, against base MT and against other systems."""
    references, resamples = [segment.target for segment in job.test], job.config.resamples
    known = {*seen.exact, *seen.near}
    path, digest = (
        job.folder / "scores.json",
        digest_of(texts, references, sorted(known), compared, resamples, job.config.metrics),
    )
    scored = recall(path, Scored, digest)
    if scored is None:
        metrics: dict[str, list[Metric]] = compare(
            texts, references, [BASE, *compared], metrics=job.config.metrics, resamples=resamples, jobs=job.jobs,
            progress=job.watch("score"),
        )  # fmt: skip
        new = [number for number in range(len(references)) if number not in known]
        unseen = {
            name: bleu([some[n] for n in new], [references[n] for n in new]).value
            for name, some in texts.items()
            if new
        }
        scored = keep(path, Scored(digest=digest, metrics=metrics, unseen=unseen))
    return scored


def served(store: Datastore, arrays: Sequence[str]) -> int:
    """Bytes of the files that a system opens; quantized keys are codes and their codebooks."""
    return sum(
        part.files[f"{name}.npy"].size for part in store.parts for array in arrays for name in part.stored_as(array)
    )


# ------------------------------------------------------------------------------------------------ files and digests


def _files(config: Config, domain: Domain, data: Path) -> tuple[list[Path], Path | None]:
    """The corpora of train and its links; all files of a domain must be there."""
    for names in (domain.train, (domain.dev,), (domain.test,)):
        try:
            files_of([data / name for name in names], Languages.parse(config.languages))
        except UsageError as error:
            raise UsageError(f"{domain.name}: {error}") from None
    links = require_readable(data / domain.alignments) if domain.alignments is not None else None
    return [data / name for name in domain.train], links


def _watched(job: Job, step: str, store: Datastore) -> Any:
    watch = job.watch(step)
    for number, segment in enumerate(store.segments(), start=1):
        if number % 1000 == 0:
            watch("", 1000, len(store))
        yield segment


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
