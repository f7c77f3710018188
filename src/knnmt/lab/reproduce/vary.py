"""Quality against one setting at a time: dev, translated with the tuned settings and another k, c, T or λ."""

from collections.abc import Iterator

from pydantic import BaseModel

from knnmt.datastore import Datastore
from knnmt.evaluate import bleu
from knnmt.lab.reproduce.job import Job, digest_of, keep, recall, search_alone, texts_of
from knnmt.lab.reproduce.results import Built, Varied
from knnmt.overlap import Overlaps
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import Translator
from knnmt.tune.dev import Dev
from knnmt.tune.held_out import DevSet, Fold


class _Points(BaseModel):
    """All points of a domain."""

    digest: str
    points: list[Varied]


def vary(job: Job, built: Built, store: Datastore, tuned: dict[str, Tuned], own: Overlaps) -> list[Varied]:
    """Translate dev with other values of each setting; what the store has of dev is not used for that."""
    plan, asked = job.config.tune, job.config.vary
    if asked is None:
        return []
    chosen = {name: found for name, found in tuned.items() if name in asked.systems and found.gate is None}
    settings = {name: found.settings.model_dump(mode="json") for name, found in chosen.items()}
    path = job.folder / "varied.json"
    digest = digest_of(
        built.digest, settings, asked.model_dump(mode="json"), plan.model_dump(mode="json"), texts_of(job.dev)
    )
    found = recall(path, _Points, digest)
    if found is not None:
        return found.points
    options = search_alone(plan.beam, plan.batch_size)
    sources, references = [segment.source for segment in job.dev], [segment.target for segment in job.dev]
    fold = Fold(job.dev, own.segments)
    points = []
    watch = job.watch("vary")
    for name, one in chosen.items():
        dev = Dev(job.model, store, [DevSet("dev", (fold,))], one.settings)
        first = next(iter(dev.sets[0].folds))
        for axis, value, given in _values(one.settings, dev.most_k, asked.model_dump()):
            translator = Translator(job.model, retriever=dev.retriever(first, given))
            texts = [each.text for each in translator.stream(sources, options)]
            points.append(Varied(system=name, setting=axis, value=value, bleu=bleu(texts, references).value))
            watch(name, 1, None)
    return keep(path, _Points(digest=digest, points=points)).points


def _values(
    best: RetrievalSettings, most_k: int | None, asked: dict[str, tuple[float, ...]]
) -> Iterator[tuple[str, float, RetrievalSettings]]:
    """Each setting with each of its values; those of T are multiples of the best."""
    system = SYSTEMS[best.system]
    assert best.temperature is not None
    for k in asked["k"] if system.takes_k else ():
        if most_k is not None and k <= most_k:
            yield "k", k, best.model_copy(update={"k": k})
    for c in asked["c"] if system.c_grid else ():
        yield "c", c, best.model_copy(update={"c": c})
    for factor in asked["temperature"]:
        yield "temperature", factor, best.model_copy(update={"temperature": best.temperature * factor})
    for weight in asked["weight"]:
        yield "weight", weight, best.model_copy(update={"weight": weight})
